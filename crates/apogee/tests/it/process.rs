//! A real `apogee` process in a temporary folder, on free ports.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program.
pub(crate) fn apogee() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apogee"));
    command.env_remove("NAMESRV_ADDR").env_remove("ROCKETMQ_HOME");
    command
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    apogee().args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// A process that serves; killed when dropped.
pub(crate) struct Serving {
    child: Child,
    folder: PathBuf,
    ready: Value,
}

impl Serving {
    /// Starts `apogee serve` with its data in `folder` and waits for the ready file.
    pub(crate) fn start(folder: &Path, more: &[&str]) -> Self {
        let data = folder.join("data");
        let mut arguments = vec!["serve", "--namesrv-port", "0", "--broker-port", "0", "--data"];
        arguments.push(data.to_str().unwrap());
        arguments.extend_from_slice(more);
        Self::start_as(folder, &arguments)
    }

    /// Starts any command that serves; what it keeps by default is in `folder`.
    pub(crate) fn start_as(folder: &Path, arguments: &[&str]) -> Self {
        let ready = folder.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut child = apogee()
            .args(arguments)
            .arg("--ready-file")
            .arg(&ready)
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while !ready.exists() {
            let ended = child.try_wait().unwrap();
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(ended.is_none() && begin.elapsed() < PATIENCE, "not ready: {ended:?}\n{log}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let ready = serde_json::from_str(&std::fs::read_to_string(&ready).unwrap()).unwrap();
        Self { child, folder: folder.to_owned(), ready }
    }

    pub(crate) fn address(&self, part: &str) -> String {
        self.ready[part].as_str().unwrap().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn ready(&self) -> &Value {
        &self.ready
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// Sends a signal; gives the exit code (none after a kill) and how long it took.
    pub(crate) fn end_by(mut self, signal: &str) -> (Option<i32>, Duration) {
        let begin = Instant::now();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), begin.elapsed());
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines that a command printed.
pub(crate) fn lines(output: &Output) -> Vec<String> {
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// What a command said about itself.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `apogee` with a name server, which must succeed.
pub(crate) fn succeed(name_server: &str, arguments: &[&str]) -> Output {
    let output = apogee()
        .args(arguments)
        .env("NAMESRV_ADDR", name_server)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    output
}

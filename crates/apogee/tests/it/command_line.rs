//! Exit codes, links and what the commands print.

use crate::process::{Serving, apogee, lines, run, said, succeed};
use std::io::Write as _;
use std::process::Stdio;

#[test]
fn wrong_usage_is_2_a_failure_is_1_and_help_is_0() {
    assert_eq!(run(&["--no-such-option"]).status.code(), Some(2));
    assert_eq!(run(&["send"]).status.code(), Some(2));
    assert_eq!(run(&["send", "bad topic!", "x"]).status.code(), Some(2));
    assert_eq!(run(&["serve", "--set", "brokerNam=x", "-p"]).status.code(), Some(2));
    assert_eq!(run(&["serve", "-c", "no-such-file.conf", "-p"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "produce", "--seconds", "0"]).status.code(), Some(2));
    assert_eq!(run(&["tail", "T", "--namesrv", "127.0.0.1:1"]).status.code(), Some(1));
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn each_cause_of_a_failed_send_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &["--set", "autoCreateTopicEnable=false"]);
    let name_server = serving.address("namesrv");
    let texts: Vec<String> = [
        run(&["send", "T", "x", "-n", "no-such-host.invalid:9876"]),
        run(&["send", "T", "x", "-n", "127.0.0.1:1"]),
        run(&["send", "T", "x", "-n", &name_server]),
        run(&["tail", "T", "--namesrv", &name_server]),
    ]
    .iter()
    .map(said)
    .collect();
    assert!(texts[0].contains("cannot be resolved"), "{texts:?}");
    assert!(texts[1].contains("cannot connect"), "{texts:?}");
    assert!(texts[2].contains("autoCreateTopicEnable"), "{texts:?}");
    assert!(texts[3].contains("does not exist"), "{texts:?}");
}

#[test]
fn what_is_sent_is_read_again_with_its_properties() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    let name_server = serving.address("namesrv");
    let sent = succeed(
        &name_server,
        &["send", "Words", "hello", "world", "-t", "a", "-k", "k1", "-p", "colour=blue"],
    );
    assert_eq!(lines(&sent).len(), 2);
    let mut child = apogee()
        .args(["send", "Words", "-", "-t", "b", "-n", &name_server])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all("eins\nzwei\n".as_bytes()).unwrap();
    assert_eq!(lines(&child.wait_with_output().unwrap()).len(), 2);
    let read = succeed(&name_server, &["tail", "Words", "--from", "first", "-n", "4"]);
    let mut words = lines(&read);
    words.sort();
    assert_eq!(words, ["eins", "hello", "world", "zwei"]);
    let tagged = ["tail", "Words", "--from", "first", "-n", "2", "--tag", "a", "-v"];
    let text = lines(&succeed(&name_server, &tagged)).join("\n");
    assert!(text.contains("colour=blue") && text.contains("KEYS=k1"), "{text}");
    assert!(!text.contains("zwei"), "{text}");
}

#[test]
fn links_named_as_the_originals_programs_act_as_them_and_print_their_settings() {
    let folder = tempfile::tempdir().unwrap();
    for (name, key) in [("mqnamesrv", "listenPort=9876"), ("mqbroker", "listenPort=10911")] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_apogee"), &link).unwrap();
        let mut command = std::process::Command::new(&link);
        command.arg("-p").env("HOME", folder.path()).env_remove("NAMESRV_ADDR");
        if name == "mqbroker" {
            command.args(["-n", "a:9876;b:9876", "--host", "192.0.2.9"]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let printed = lines(&output);
        assert!(printed.iter().any(|line| line == key), "{printed:?}");
        let has_list = printed.iter().any(|line| line == "namesrvAddr=a:9876;b:9876");
        assert_eq!(has_list, name == "mqbroker");
    }
}

#[test]
fn a_stopped_store_is_sound_and_its_records_can_be_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::start(folder.path(), &[]);
    succeed(&serving.address("namesrv"), &["send", "Dumped", "one", "two"]);
    assert_eq!(serving.end_by("TERM").0, Some(0));
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let check = run(&["store", "check", data, "--json"]);
    assert!(check.status.success(), "{}", said(&check));
    let report: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(
        (report["sound"].as_bool(), report["problem_count"].as_u64()),
        (Some(true), Some(0))
    );
    let dump = run(&["store", "dump", data, "--topic", "Dumped", "--json"]);
    let bodies: Vec<String> = lines(&dump)
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["body"].to_string())
        .collect();
    assert_eq!(bodies, ["\"one\"", "\"two\""]);
    assert_eq!(lines(&run(&["store", "dump", data, "--limit", "1", "--json"])).len(), 1);
    assert_eq!(run(&["store", "check", "no-such-folder"]).status.code(), Some(2));
}

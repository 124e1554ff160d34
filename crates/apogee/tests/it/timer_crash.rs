//! Timer messages of a process that is killed while it delivers.

use crate::process::{Serving, lines, succeed};

const MESSAGES: usize = 12;

fn serve(folder: &std::path::Path) -> Serving {
    Serving::start(folder, &["--set", "timerPrecisionMs=100", "--set", "timerFlushIntervalMs=150"])
}

fn read(serving: &Serving, count: usize) -> Vec<String> {
    let count = count.to_string();
    let arguments = ["tail", "Timed", "--from", "first", "-n", &count];
    let mut bodies = lines(&succeed(&serving.address("namesrv"), &arguments));
    bodies.sort();
    bodies
}

fn send(serving: &Serving, body: &str, delay_ms: usize) {
    let property = format!("TIMER_DELAY_MS={delay_ms}");
    succeed(&serving.address("namesrv"), &["send", "Timed", body, "--property", &property]);
}

#[test]
fn a_process_killed_while_it_delivers_loses_no_timer_message_and_doubles_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = serve(folder.path());
    let name = |n: usize| format!("m{n:02}");
    for n in 0..MESSAGES {
        send(&serving, &name(n), 600 + 150 * n);
    }
    for delivered in [1, 4, 7] {
        assert!(read(&serving, delivered).len() >= delivered);
        serving.end_by("KILL");
        serving = serve(folder.path());
    }
    // This one is due behind all others: a message that came twice would be among the first.
    send(&serving, "z-last", 3_000);
    let mut expected: Vec<String> = (0..MESSAGES).map(name).collect();
    expected.push("z-last".to_owned());
    assert_eq!(read(&serving, MESSAGES + 1), expected);
}

//! The control socket: one command a line, one line of answer, which begins with `ok` or `error`.
//! A thread for each client, since some commands wait.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use crate::End;
use crate::disk::Disk;
use crate::gate::{Gate, Whose};
use crate::op::OpSet;
use crate::rule::{number, parse_errno, parse_ms};

/// Clients at once; more are turned away.
const CLIENTS_MAX: usize = 64;
/// The longest command.
const LINE_MAX_BYTES: u64 = 8192;

/// What the commands act on.
pub struct Control {
    /// Rules, hangs, counts.
    pub gate: Arc<Gate>,
    /// Vanish and return.
    pub disk: Arc<Disk>,
    /// Told by `quit`.
    pub ends: Sender<End>,
}

type Reply = Result<String, String>;

impl Control {
    /// Serves clients for ever; the body of a thread.
    pub fn serve(self, listener: &UnixListener) {
        let control = Arc::new(self);
        let clients = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().flatten() {
            if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (control, count) = (Arc::clone(&control), Arc::clone(&clients));
            let spawned = thread::Builder::new().name("client".to_owned()).spawn(move || {
                // A client that went away has nobody to be told.
                control.client(&stream).unwrap_or_default();
                count.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                clients.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn client(&self, stream: &UnixStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if (&mut lines).take(LINE_MAX_BYTES).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let text = match self.command(&words) {
                Ok(text) if text.is_empty() => "ok\n".to_owned(),
                Ok(text) => format!("ok {text}\n"),
                Err(text) => format!("error {}\n", text.replace('\n', " ")),
            };
            let mut stream = stream;
            stream.write_all(text.as_bytes())?;
            if words == ["quit"] {
                // A receiver that is gone has ended already.
                self.ends.send(End::Quit).unwrap_or_default();
            }
        }
    }

    fn command(&self, words: &[&str]) -> Reply {
        match words {
            ["rule", "add", rule @ ..] => self.gate.rule_add(rule).map(|id| id.to_string()),
            ["rule", "del", id] => self.gate.rule_delete(number("ID", id)?).map(|()| String::new()),
            ["rule", "fired", id] => {
                self.gate.rule_fired(number("ID", id)?).map(|count| count.to_string())
            }
            ["rules", "clear"] => {
                self.gate.rules_clear();
                Ok(String::new())
            }
            ["release", rest @ ..] => self.release(rest),
            ["hung"] => Ok(self.gate.hung()),
            ["wait-hung", want, ms] => self.wait_hung("any", want, ms),
            ["wait-hung", want, ms, ops] => self.wait_hung(ops, want, ms),
            ["wait-count", ops, pattern, want, ms] => {
                let (ops, want) = (OpSet::parse(ops)?, number("N", want)?);
                self.gate.wait_count(ops, pattern, want, parse_ms(ms)?)
            }
            ["vanish"] => self.disk.vanish().map(|p| p.display().to_string()).map_err(text),
            ["return"] => self.disk.come_back().map(|()| String::new()).map_err(text),
            ["record", "off"] => self.record(None),
            ["record", path] => self.record(Some(path)),
            ["freeze"] => {
                self.gate.freeze();
                Ok(String::new())
            }
            ["thaw"] => self.gate.thaw().map(|count| count.to_string()),
            ["counts"] => self.gate.counts(None),
            ["counts", "reset"] => {
                self.gate.counts_reset();
                Ok(String::new())
            }
            ["counts", pattern] => self.gate.counts(Some(pattern)),
            ["quit"] => {
                self.gate.rules_clear();
                let thawed = self.gate.thaw()?;
                self.gate.release(Whose::All, None).map(|count| (thawed + count).to_string())
            }
            _ => Err("unknown command; see README.md".to_owned()),
        }
    }

    fn record(&self, path: Option<&str>) -> Reply {
        self.disk.record.start(path).map(|()| String::new()).map_err(text)
    }

    fn release(&self, words: &[&str]) -> Reply {
        let (whose, fail) = match words {
            [] => (Whose::All, None),
            ["fail", errno] => (Whose::All, Some(parse_errno(errno)?)),
            [id] => (Whose::Rule(number("ID", id)?), None),
            [id, "fail", errno] => (Whose::Rule(number("ID", id)?), Some(parse_errno(errno)?)),
            _ => return Err("release [ID] [fail ERRNO]".to_owned()),
        };
        self.gate.release(whose, fail).map(|count| count.to_string())
    }

    fn wait_hung(&self, ops: &str, want: &str, ms: &str) -> Reply {
        self.gate.wait_hung(OpSet::parse(ops)?, number("N", want)?, parse_ms(ms)?)
    }
}

/// Sends one command, for shells: prints the answer; fails where it is an error.
pub fn send(words: &[String]) -> ExitCode {
    let Some((socket, command)) = words.split_first() else {
        eprintln!("faultfs send SOCKET COMMAND...");
        return ExitCode::FAILURE;
    };
    let answer = UnixStream::connect(socket).and_then(|mut stream| {
        stream.write_all(format!("{}\n", command.join(" ")).as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    });
    match answer {
        Ok(line) => {
            print!("{line}");
            if line.starts_with("ok") { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("faultfs: {socket}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: io::Error) -> String {
    error.to_string()
}

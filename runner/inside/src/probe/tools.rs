//! Real tools, each with a real request: does the trust kit reach them?
//!
//! `init tools URL TOKEN` tries every tool it knows that the image has, once as
//! the sandbox's variables say and once without the proxy's, and prints one line
//! of JSON each. Which file or variable a tool believes is its own business; what
//! counts is that it got the token over TLS.

use std::env;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::fetch::{self, Way};

/// One row of the matrix.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Row {
    pub tool: String,
    pub way: Way,
    pub works: bool,
    /// Why not.
    pub detail: String,
}

/// What a stand-in has for git: a repository, as a plain file server has it.
const GIT: &str = "/repository.git";
/// And for pip: requirements that it finds fulfilled.
const PIP: &str = "/requirements.txt";

struct Tool {
    name: &'static str,
    program: &'static str,
    /// What has to be there besides the program.
    needs: Option<&'static [&'static str]>,
    arguments: fn(&Asked) -> Vec<String>,
    /// What its output must have; the token if nothing.
    shows: Option<&'static str>,
}

struct Asked {
    url: String,
    token: String,
    way: Way,
}

impl Asked {
    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// A path that is told back, and with it the token.
    fn plain(&self) -> String {
        self.at(&format!("/{}", self.token))
    }

    fn host(&self) -> &str {
        self.url.strip_prefix("https://").unwrap_or(&self.url)
    }
}

const TOOLS: &[Tool] = &[
    tool("curl", "curl", |asked| words(&["-sS", "--max-time", "20", &asked.plain()])),
    tool("wget", "wget", |asked| words(&["-q", "-O", "-", "-T", "20", &asked.plain()])),
    Tool {
        name: "git",
        program: "git",
        needs: None,
        arguments: |asked| words(&["ls-remote", &asked.at(GIT)]),
        shows: Some("refs/heads/main"),
    },
    tool("python3 urllib", "python3", |asked| {
        let code = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())";
        words(&["-c", code, &asked.plain()])
    }),
    Tool {
        name: "python3 requests",
        program: "python3",
        needs: Some(&["python3", "-c", "import requests"]),
        arguments: |asked| {
            let code = "import sys, requests; print(requests.get(sys.argv[1], timeout=20).text)";
            words(&["-c", code, &asked.plain()])
        },
        shows: None,
    },
    Tool {
        name: "python3 httpx",
        program: "python3",
        needs: Some(&["python3", "-c", "import httpx"]),
        arguments: |asked| {
            let code = "import sys, httpx; print(httpx.get(sys.argv[1], timeout=20).text)";
            words(&["-c", code, &asked.plain()])
        },
        shows: None,
    },
    Tool {
        name: "pip",
        program: "python3",
        needs: Some(&["python3", "-m", "pip", "--version"]),
        arguments: |asked| {
            let quiet = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input"];
            let ask = asked.at(PIP);
            let rest = ["--dry-run", "--no-index", "--break-system-packages", "-r", &ask];
            words(&[&quiet[..], &rest].concat())
        },
        shows: Some("already satisfied"),
    },
    tool("node https", "node", |asked| {
        let code = "require('https').get(process.argv[1], r => r.pipe(process.stdout)).on('error', e => { console.error(e.message); process.exitCode = 1 })";
        words(&["-e", code, &asked.plain()])
    }),
    Tool {
        name: "node fetch",
        program: "node",
        needs: Some(&["node", "-e", "if (typeof fetch !== 'function') process.exit(1)"]),
        arguments: |asked| {
            let code = "fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t), e => { console.error(e.cause ? e.cause.message : e.message); process.exitCode = 1 })";
            words(&["-e", code, &asked.plain()])
        },
        shows: None,
    },
    Tool {
        name: "openssl s_client",
        program: "openssl",
        needs: None,
        arguments: |asked| {
            let host = asked.host();
            let at = format!("{host}:443");
            let mut line = words(&["s_client", "-verify_return_error", "-servername", host]);
            line.extend(words(&["-connect", &at]));
            if asked.way == Way::Proxy {
                line.extend(words(&["-proxy", "gateway.sluice:3128"]));
            }
            line
        },
        shows: Some("Verify return code: 0 (ok)"),
    },
    tool("ruby", "ruby", |asked| {
        words(&["-ropen-uri", "-e", "puts URI.open(ARGV[0]).read", &asked.plain()])
    }),
    tool("deno", "deno", |asked| {
        let code = format!("console.log(await (await fetch('{}')).text())", asked.plain());
        words(&["eval", &code])
    }),
    tool("bun", "bun", |asked| {
        let code = format!("console.log(await (await fetch('{}')).text())", asked.plain());
        words(&["-e", &code])
    }),
    Tool {
        name: "java",
        program: "java",
        needs: Some(&["javac", "-version"]),
        arguments: |asked| {
            let path = format!("/tmp/sluice-tools-{:?}/Fetch.java", asked.way);
            if let Some(folder) = Path::new(&path).parent() {
                drop(fs::create_dir_all(folder));
            }
            drop(fs::write(&path, JAVA));
            words(&[&path, &asked.plain()])
        },
        shows: None,
    },
];

const JAVA: &str = "public class Fetch { public static void main(String[] a) throws Exception { \
    System.out.write(new java.net.URL(a[0]).openStream().readAllBytes()); System.out.flush(); } }\n";

const fn tool(
    name: &'static str,
    program: &'static str,
    arguments: fn(&Asked) -> Vec<String>,
) -> Tool {
    Tool { name, program, needs: None, arguments, shows: None }
}

/// `init tools URL TOKEN`, after the two words.
pub fn main(arguments: &[String]) -> ExitCode {
    let [url, token] = arguments else { return ExitCode::from(2) };
    let asked = |way| Asked { url: url.clone(), token: token.clone(), way };
    for way in [Way::Proxy, Way::Direct] {
        print(&ours(&asked(way)));
    }
    let there: Vec<&Tool> = TOOLS.iter().filter(|tool| tool.is_there()).collect();
    // A few at a time: some of them are heavy.
    for few in there.chunks(3) {
        thread::scope(|scope| {
            for tool in few {
                scope.spawn(move || {
                    for way in [Way::Proxy, Way::Direct] {
                        let asked = Asked { url: url.clone(), token: token.clone(), way };
                        print(&tool.row(&asked));
                    }
                });
            }
        });
    }
    ExitCode::SUCCESS
}

/// The client that is in every sandbox.
fn ours(asked: &Asked) -> Row {
    let answer = fetch::fetch(&asked.plain(), asked.way);
    let (works, detail) = match answer {
        Ok(answer) if answer.body.contains(&asked.token) => (true, String::new()),
        Ok(answer) => (false, format!("{} {}", answer.status, short(&answer.body))),
        Err(err) => (false, err.to_string()),
    };
    Row { tool: "sluice-probe fetch".to_owned(), way: asked.way, works, detail }
}

impl Tool {
    fn is_there(&self) -> bool {
        let Some(path) = find(self.program) else { return false };
        // The one in busybox opens TLS without looking at certificates.
        if path.canonicalize().is_ok_and(|path| path.ends_with("busybox")) {
            return false;
        }
        match self.needs {
            None | Some([]) => true,
            Some([program, arguments @ ..]) => Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success()),
        }
    }

    fn row(&self, asked: &Asked) -> Row {
        let mut command = Command::new(self.program);
        command.args((self.arguments)(asked)).env("GIT_TERMINAL_PROMPT", "0");
        if asked.way == Way::Direct {
            forget_proxy(&mut command);
        }
        let wanted = self.shows.unwrap_or(&asked.token);
        let (works, detail) = match run(&mut command) {
            Ok(said) if said.contains(wanted) => (true, String::new()),
            Ok(said) => (false, short(&said)),
            Err(why) => (false, why),
        };
        Row { tool: self.name.to_owned(), way: asked.way, works, detail }
    }
}

/// Everything it printed, to its end.
fn run(command: &mut Command) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|err| format!("cannot be started: {err}"))?;
    let mut streams: Vec<Box<dyn std::io::Read + Send>> = Vec::new();
    streams.extend(child.stdout.take().map(|out| Box::new(out) as Box<_>));
    streams.extend(child.stderr.take().map(|err| Box::new(err) as Box<_>));
    let readers: Vec<_> = streams
        .into_iter()
        .map(|stream| {
            thread::spawn(move || {
                let mut text = Vec::new();
                drop(stream.take(1 << 20).read_to_end(&mut text));
                String::from_utf8_lossy(&text).into_owned()
            })
        })
        .collect();
    let deadline = Instant::now() + TOOL_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                drop(child.kill());
                drop(child.wait());
                return Err(format!("not done in {} s", TOOL_TIMEOUT.as_secs()));
            }
        }
    }
    Ok(readers.into_iter().filter_map(|reader| reader.join().ok()).collect())
}

const TOOL_TIMEOUT: Duration = Duration::from_secs(40);

/// As a program that knows nothing of proxies; what it believes stays.
fn forget_proxy(command: &mut Command) {
    for (name, value) in env::vars() {
        if name.to_ascii_lowercase().contains("proxy") {
            command.env_remove(&name);
        } else if name == "JAVA_TOOL_OPTIONS" {
            let kept: Vec<_> = value
                .split(' ')
                .filter(|word| !word.to_ascii_lowercase().contains("proxy"))
                .collect();
            command.env(&name, kept.join(" "));
        }
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The end of what it said, which says why.
fn short(said: &str) -> String {
    let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    line.trim().chars().take(200).collect()
}

fn print(row: &Row) {
    if let Ok(mut line) = serde_json::to_string(row) {
        line.push('\n');
        drop(std::io::stdout().write_all(line.as_bytes()));
    }
}

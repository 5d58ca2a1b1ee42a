//! A proxy before a store's server that loses answers, answers in the server's place, and counts what passes.
//!
//! Speaks as much HTTP/1.1 as `object_store` and the test servers do: requests and answers with a length, in chunks, or without a
//! body; one request at a time on a connection.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A request that reached the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its number, from 1 on.
    pub number: u64,
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub path: String,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It passes, and so does its answer.
    Pass,
    /// The server never sees it: this status is the answer.
    Refuse(u16),
    /// The server carries it out; the connection breaks before the answer.
    LoseAnswer,
    /// The server never sees it; the connection breaks.
    LoseRequest,
    /// The server carries it out, but this status is the answer.
    LieAfter(u16),
}

type Decide = dyn Fn(&Request) -> Outcome + Send + Sync;

/// A proxy on loopback. Ends with the test's process; dropped, it takes no more connections.
pub struct Proxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy to `server`; `decide` says what becomes of each request.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(server: SocketAddr, decide: impl Fn(&Request) -> Outcome + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap_or_else(|e| panic!("a free port: {e}"));
        let address = listener.local_addr().unwrap_or_else(|e| panic!("a free port: {e}"));
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (all, decide): (_, Arc<Decide>) = (seen.clone(), Arc::new(decide));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (seen, decide) = (all.clone(), decide.clone());
                // A connection that breaks is the client's to notice.
                thread::spawn(move || serve(client, server, &seen, decide.as_ref()));
            }
        });
        Self { address, seen }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has reached it, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what has reached it.
    pub fn forget(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn serve(client: TcpStream, server: SocketAddr, seen: &Mutex<Vec<Request>>, decide: &Decide) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut client = client;
    loop {
        let Some(head) = head(&mut reader)? else { return Ok(()) };
        if header(&head, "expect").is_some() {
            client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let body = body(&head, &mut reader, false)?;
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
        let request = {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let request = Request { number: seen.len() as u64 + 1, method, path };
            seen.push(request.clone());
            request
        };
        let outcome = decide(&request);
        match outcome {
            Outcome::Refuse(status) => {
                client.write_all(canned(status).as_bytes())?;
                continue;
            }
            Outcome::LoseRequest => return client.shutdown(Shutdown::Both),
            Outcome::Pass | Outcome::LoseAnswer | Outcome::LieAfter(_) => {}
        }
        let mut upstream = TcpStream::connect(server)?;
        upstream.write_all(head.as_bytes())?;
        upstream.write_all(&body)?;
        let mut answers = BufReader::new(upstream);
        let answer = loop {
            let answer = self::head(&mut answers)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if !answer.starts_with("HTTP/1.1 100") {
                break answer;
            }
        };
        let bare = request.method == "HEAD" || answer.contains(" 204 ") || answer.contains(" 304 ");
        let body = if bare { Vec::new() } else { self::body(&answer, &mut answers, true)? };
        match outcome {
            Outcome::LoseAnswer => return client.shutdown(Shutdown::Both),
            Outcome::LieAfter(status) => client.write_all(canned(status).as_bytes())?,
            _ => {
                client.write_all(answer.as_bytes())?;
                client.write_all(&body)?;
                if header(&answer, "content-length").is_none() && header(&answer, "transfer-encoding").is_none() && !bare {
                    return client.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

fn canned(status: u16) -> String {
    let body = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
    format!(
        "HTTP/1.1 {status} Test\r\nETag: \"0\"\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A head with its empty line; `None` if the connection has ended.
fn head(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if matches!(&head[before..], "\r\n" | "\n") {
            return Ok(Some(head));
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

/// A body as it stands on the wire.
fn body(head: &str, reader: &mut impl BufRead, to_end: bool) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if let Some(length) = header(head, "content-length") {
        let length: u64 = length.parse().map_err(io::Error::other)?;
        reader.take(length).read_to_end(&mut body)?;
    } else if header(head, "transfer-encoding").is_some_and(|value| value.contains("chunked")) {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let length = u64::from_str_radix(size.trim().split(';').next().unwrap_or(""), 16).map_err(io::Error::other)?;
            body.extend_from_slice(size.as_bytes());
            reader.take(length + 2).read_to_end(&mut body)?;
            if length == 0 {
                break;
            }
        }
    } else if to_end {
        reader.read_to_end(&mut body)?;
    }
    Ok(body)
}

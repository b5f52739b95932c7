//! An HTTP receiver on a raw socket: records what came, byte for byte, and answers as told.
//!
//! It runs on a thread of its own, so a test's paused clock or busy runtime does not touch it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};

/// Connections the system keeps until they are accepted.
const BACKLOG: u32 = 4096;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// `POST`.
    pub(crate) method: String,
    /// The request target, with its query.
    pub(crate) path: String,
    /// Name and value in order, in the case they were sent.
    pub(crate) headers: Vec<(String, String)>,
    /// The body, decoded from chunks.
    pub(crate) body: Vec<u8>,
    /// When the head was complete.
    pub(crate) at: Instant,
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
}

impl Received {
    /// The first value of the header `name`, whatever its case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter();
        named
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text; panics when it is not UTF-8.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }
}

/// What the receiver does with a request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    delay: Duration,
    gate: Option<Gate>,
    kind: Kind,
}

/// Holds answers back until the test lets them go.
#[derive(Debug, Clone)]
pub(crate) struct Gate(watch::Sender<bool>);

impl Gate {
    /// A gate that is shut.
    pub(crate) fn shut() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Lets everything through, from now on.
    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    async fn pass(&self) {
        let opened = self
            .0
            .subscribe()
            .wait_for(|is_open| *is_open)
            .await
            .is_ok();
        assert!(opened, "the gate itself keeps its sender");
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    Raw(Vec<u8>),
    Stream {
        head: Vec<u8>,
        piece: Vec<u8>,
        pause: Duration,
    },
    Hang,
    Close,
}

impl Answer {
    /// A response with this status and an empty body; the connection stays open.
    pub(crate) fn status(status: u16) -> Self {
        Self::of(Kind::Response {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        })
    }

    /// 200.
    pub(crate) fn ok() -> Self {
        Self::status(200)
    }

    /// No answer; the connection stays open until the other side closes it.
    pub(crate) fn hang() -> Self {
        Self::of(Kind::Hang)
    }

    /// The connection is closed without an answer.
    pub(crate) fn close() -> Self {
        Self::of(Kind::Close)
    }

    /// These bytes, then the connection is closed.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(Kind::Raw(bytes.into()))
    }

    /// The bytes of `head`, then `piece` again and again with this pause before each, until the other
    /// side closes.
    pub(crate) fn stream(
        head: impl Into<Vec<u8>>,
        piece: impl Into<Vec<u8>>,
        pause: Duration,
    ) -> Self {
        Self::of(Kind::Stream {
            head: head.into(),
            piece: piece.into(),
            pause,
        })
    }

    /// Adds a header to a response.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if let Kind::Response { headers, .. } = &mut self.kind {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Gives a response a body.
    pub(crate) fn body(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        if let Kind::Response { body, .. } = &mut self.kind {
            *body = bytes.into();
        }
        self
    }

    /// Lets this happen so long after the request was read.
    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Lets this happen only once the gate is open.
    pub(crate) fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    fn of(kind: Kind) -> Self {
        Self {
            delay: Duration::ZERO,
            gate: None,
            kind,
        }
    }
}

type Script = dyn Fn(&Received) -> Answer + Send + Sync;

/// A running receiver on 127.0.0.1; closed when dropped.
pub(crate) struct Receiver {
    addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    script: Box<Script>,
    received: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    open_max: AtomicUsize,
    /// Requests being answered now, and the most at one time.
    active: AtomicUsize,
    active_max: AtomicUsize,
    added: Notify,
    stop: Notify,
}

impl Receiver {
    /// Answers every request with 200.
    pub(crate) fn start() -> Self {
        Self::always(Answer::ok())
    }

    /// Answers every request the same way.
    pub(crate) fn always(answer: Answer) -> Self {
        Self::with(move |_| answer.clone())
    }

    /// Answers the requests in the order they arrive; the last answer is repeated.
    pub(crate) fn answering(answers: Vec<Answer>) -> Self {
        let next = AtomicUsize::new(0);
        Self::with(move |_| {
            let index = next.fetch_add(1, Ordering::SeqCst);
            let answer = answers.get(index).or(answers.last());
            answer.cloned().unwrap_or_else(Answer::ok)
        })
    }

    /// Answers as `script` says.
    pub(crate) fn with(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let state = Arc::new(State {
            script: Box::new(script),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            active_max: AtomicUsize::new(0),
            added: Notify::new(),
            stop: Notify::new(),
        });
        let (tell, told) = std::sync::mpsc::channel();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = listen();
                tell.send(listener.local_addr().expect("an address"))
                    .expect("the test is there");
                tokio::select! {
                    () = accept(listener, Arc::clone(&shared)) => {}
                    () = shared.stop.notified() => {}
                }
            });
        });
        let addr = told.recv().expect("the receiver has started");
        Self { addr, state }
    }

    /// `127.0.0.1:port`.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://127.0.0.1:port` with `path` behind it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Everything received so far, in the order of arrival.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// How many requests have come.
    pub(crate) fn count(&self) -> usize {
        self.state.received.lock().unwrap().len()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// The most connections that were open at one time.
    pub(crate) fn open_max(&self) -> usize {
        self.state.open_max.load(Ordering::SeqCst)
    }

    /// The most requests that were being answered at one time.
    pub(crate) fn active_max(&self) -> usize {
        self.state.active_max.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests have come and returns all; panics after `timeout`.
    pub(crate) async fn wait_for(&self, count: usize, timeout: Duration) -> Vec<Received> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            let added = self.state.added.notified();
            if self.count() >= count {
                return self.received();
            }
            if tokio::time::timeout_at(deadline, added).await.is_err() {
                let came = self.count();
                panic!("{came} of {count} requests came within {timeout:?}");
            }
        }
    }

    /// Waits for `quiet` and panics when more than `count` requests have come by then.
    pub(crate) async fn expect_no_more_than(&self, count: usize, quiet: Duration) {
        tokio::time::sleep(quiet).await;
        let came = self.count();
        assert!(came <= count, "{came} requests came, expected {count}");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.state.stop.notify_one();
    }
}

/// Counts up, keeps the maximum, and counts down when dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn up(now: &'a AtomicUsize, max: &AtomicUsize) -> Self {
        max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(now)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A listener on a free port of 127.0.0.1 with room for many connections.
pub(crate) fn listen() -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket
        .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .expect("a free port");
    socket.listen(BACKLOG).expect("a listener")
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: those that are open go on.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let number = state.connections.fetch_add(1, Ordering::SeqCst);
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let _open = Counted::up(&state.open, &state.open_max);
            drop(serve(stream, number, &state).await);
        });
    }
}

async fn serve(stream: TcpStream, connection: usize, state: &State) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(request) = read_request(&mut stream, connection).await? {
        let _active = Counted::up(&state.active, &state.active_max);
        let answer = (state.script)(&request);
        let keep_alive = !request
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        state.received.lock().unwrap().push(request);
        state.added.notify_waiters();
        tokio::time::sleep(answer.delay).await;
        if let Some(gate) = &answer.gate {
            gate.pass().await;
        }
        match answer.kind {
            Kind::Response {
                status,
                headers,
                body,
            } => {
                let bytes = response(status, &headers, &body);
                stream.write_all(&bytes).await?;
                if !keep_alive {
                    return Ok(());
                }
            }
            Kind::Raw(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Kind::Stream { head, piece, pause } => {
                stream.write_all(&head).await?;
                loop {
                    tokio::time::sleep(pause).await;
                    stream.write_all(&piece).await?;
                }
            }
            Kind::Close => return Ok(()),
            Kind::Hang => {
                let mut ignored = Vec::new();
                stream.read_to_end(&mut ignored).await?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The next request; `None` when the other side has closed.
async fn read_request(
    stream: &mut BufReader<TcpStream>,
    connection: usize,
) -> std::io::Result<Option<Received>> {
    let Some(first) = read_line(stream).await? else {
        return Ok(None);
    };
    let mut words = first.split(' ');
    let method = words.next().unwrap_or_default().to_owned();
    let path = words.next().unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    while let Some(line) = read_line(stream).await?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut request = Received {
        method,
        path,
        headers,
        body: Vec::new(),
        at: Instant::now(),
        connection,
    };
    if request.header("transfer-encoding").is_some() {
        request.body = read_chunks(stream).await?;
    } else if let Some(length) = request.header("content-length") {
        let length = length.parse().map_err(std::io::Error::other)?;
        request.body = vec![0; length];
        stream.read_exact(&mut request.body).await?;
    }
    Ok(Some(request))
}

async fn read_chunks(stream: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = read_line(stream).await?.unwrap_or_default();
        let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        let mut chunk = vec![0; size];
        stream.read_exact(&mut chunk).await?;
        body.append(&mut chunk);
        read_line(stream).await?;
        if size == 0 {
            return Ok(body);
        }
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    if stream.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line);
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn response(status: u16, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut head = vec![format!("HTTP/1.1 {status} Answer")];
    head.extend(
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}")),
    );
    if status >= 200 && status != 204 && status != 304 {
        head.push(format!("content-length: {}", body.len()));
    }
    [head.join("\r\n").as_bytes(), b"\r\n\r\n", body].concat()
}

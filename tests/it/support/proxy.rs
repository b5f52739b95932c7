//! A TCP proxy that cuts, pauses, refuses and changes its upstream.
//!
//! It runs on a thread of its own. Nothing in it knows Redis but the counting of commands.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// How long the upstream may take to answer what it got before a cut.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A running proxy on 127.0.0.1; it and all its connections are closed when it is dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    control: Mutex<Control>,
    /// Counts the cuts: every connection opened before the last one is closed.
    cuts: watch::Sender<u64>,
    paused: watch::Sender<bool>,
    stop: Notify,
}

struct Control {
    upstream: SocketAddr,
    is_refusing: bool,
    accepted: usize,
    cut: Option<Cut>,
}

/// A cut that is to come, counted over all connections from the moment it was asked for.
#[derive(Clone, Copy)]
enum Cut {
    Commands(usize),
    RequestBytes(usize),
    ReplyBytes(usize),
}

/// What to do with a piece of data.
struct Passage {
    /// How much of it still goes through.
    bytes: usize,
    is_cut: bool,
}

impl Proxy {
    /// A proxy to `127.0.0.1:port`.
    pub(crate) fn to_port(port: u16) -> Self {
        Self::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// A proxy to `upstream`.
    pub(crate) fn start(upstream: SocketAddr) -> Self {
        let shared = Arc::new(Shared {
            control: Mutex::new(Control {
                upstream,
                is_refusing: false,
                accepted: 0,
                cut: None,
            }),
            cuts: watch::Sender::new(0),
            paused: watch::Sender::new(false),
            stop: Notify::new(),
        });
        let (tell, told) = std::sync::mpsc::channel();
        let inner = Arc::clone(&shared);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let addr = listener.local_addr().expect("an address");
                tell.send(addr.port()).expect("the test is there");
                tokio::select! {
                    () = accept(listener, Arc::clone(&inner)) => {}
                    () = inner.stop.notified() => {}
                }
            });
        });
        let port = told.recv().expect("the proxy has started");
        Self { port, shared }
    }

    /// The port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A Redis URL through the proxy.
    pub(crate) fn redis_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.control.lock().unwrap().accepted
    }

    /// New connections go to 127.0.0.1:`port`; open ones stay where they are.
    pub(crate) fn switch_to_port(&self, port: u16) {
        let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.shared.control.lock().unwrap().upstream = upstream;
    }

    /// Closes all open connections.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on connections are accepted and closed at once (or accepted again).
    pub(crate) fn refuse(&self, is_refusing: bool) {
        self.shared.control.lock().unwrap().is_refusing = is_refusing;
    }

    /// Nothing passes in either direction, connections stay open, new ones are accepted.
    pub(crate) fn pause(&self) {
        self.shared.paused.send_replace(true);
    }

    /// Ends [`Proxy::pause`]; what was held back passes now.
    pub(crate) fn resume(&self) {
        self.shared.paused.send_replace(false);
    }

    /// Lets `count` more Redis commands reach the upstream, then closes the connection of the last
    /// one before its reply passes. Replies to the commands in the same packet do not pass either.
    /// The commands of a login count too.
    pub(crate) fn cut_after_commands(&self, count: usize) {
        self.set_cut(Cut::Commands(count));
    }

    /// Lets `count` more bytes reach the upstream, then closes the connection of the last one.
    pub(crate) fn cut_after_request_bytes(&self, count: usize) {
        self.set_cut(Cut::RequestBytes(count));
    }

    /// Lets `count` more bytes reach a client, then closes its connection: what was asked has been
    /// applied and its answer is lost.
    pub(crate) fn cut_after_reply_bytes(&self, count: usize) {
        self.set_cut(Cut::ReplyBytes(count));
    }

    fn set_cut(&self, cut: Cut) {
        self.shared.control.lock().unwrap().cut = Some(cut);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
    }
}

impl Shared {
    fn admit(&self) -> Option<SocketAddr> {
        let mut control = self.control.lock().unwrap();
        control.accepted += 1;
        (!control.is_refusing).then_some(control.upstream)
    }

    /// How much of `data`, sent by a client, passes.
    fn pass_request(&self, data: &[u8], commands: &mut CommandCounter) -> Passage {
        let ends = commands.ends(data);
        let mut control = self.control.lock().unwrap();
        match control.cut {
            Some(Cut::Commands(left)) => match ends.get(left.saturating_sub(1)) {
                Some(&end) => control.cut_now(if left == 0 { 0 } else { end }),
                None if left == 0 => control.cut_now(0),
                None => {
                    control.cut = Some(Cut::Commands(left - ends.len()));
                    Passage::all(data)
                }
            },
            Some(Cut::RequestBytes(left)) if data.len() >= left => control.cut_now(left),
            Some(Cut::RequestBytes(left)) => {
                control.cut = Some(Cut::RequestBytes(left - data.len()));
                Passage::all(data)
            }
            Some(Cut::ReplyBytes(_)) | None => Passage::all(data),
        }
    }

    /// How much of `data`, sent by the upstream, passes.
    fn pass_reply(&self, data: &[u8]) -> Passage {
        let mut control = self.control.lock().unwrap();
        match control.cut {
            Some(Cut::ReplyBytes(left)) if data.len() >= left => control.cut_now(left),
            Some(Cut::ReplyBytes(left)) => {
                control.cut = Some(Cut::ReplyBytes(left - data.len()));
                Passage::all(data)
            }
            _ => Passage::all(data),
        }
    }
}

impl Control {
    fn cut_now(&mut self, bytes: usize) -> Passage {
        self.cut = None;
        Passage {
            bytes,
            is_cut: true,
        }
    }
}

impl Passage {
    fn all(data: &[u8]) -> Self {
        Self {
            bytes: data.len(),
            is_cut: false,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let Some(upstream) = shared.admit() else {
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut cuts = shared.cuts.subscribe();
            tokio::select! {
                ended = forward(client, upstream, &shared) => drop(ended),
                _ = cuts.changed() => {}
            }
        });
    }
}

async fn forward(client: TcpStream, upstream: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    wait_while_paused(shared).await;
    let upstream = TcpStream::connect(upstream).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_upstream, mut to_upstream) = upstream.into_split();
    let mut commands = CommandCounter::default();
    let requests = copy(shared, &mut from_client, &mut to_upstream, |data| {
        shared.pass_request(data, &mut commands)
    });
    let replies = copy(shared, &mut from_upstream, &mut to_client, |data| {
        shared.pass_reply(data)
    });
    // Either end closes both.
    let is_request_cut = tokio::select! {
        is_cut = requests => is_cut?,
        ended = replies => { ended?; false }
    };
    if is_request_cut {
        // The upstream answers all it was sent before the client sees its connection close.
        let mut unsent = Vec::new();
        let drain = from_upstream.read_to_end(&mut unsent);
        drop(tokio::time::timeout(DRAIN_TIMEOUT, drain).await);
    }
    Ok(())
}

/// Copies until one side closes or a cut; says whether it was a cut.
async fn copy(
    shared: &Shared,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut passage: impl FnMut(&[u8]) -> Passage,
) -> std::io::Result<bool> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        wait_while_paused(shared).await;
        let data = &buffer[..read];
        let passage = passage(data);
        to.write_all(&data[..passage.bytes]).await?;
        if read == 0 || passage.is_cut {
            to.shutdown().await?;
            return Ok(passage.is_cut);
        }
    }
}

async fn wait_while_paused(shared: &Shared) {
    let mut paused = shared.paused.subscribe();
    drop(paused.wait_for(|&is_paused| !is_paused).await);
}

/// Finds the ends of Redis commands (arrays of bulk strings) in a stream of pieces.
#[derive(Default)]
struct CommandCounter {
    /// Strings still to come in the command being read.
    strings: usize,
    /// Bytes still to come in the string being read, with its line end.
    skip: usize,
    line: Vec<u8>,
}

impl CommandCounter {
    /// The offsets behind each command that ends within `data`.
    fn ends(&mut self, data: &[u8]) -> Vec<usize> {
        let mut ends = Vec::new();
        for (index, &byte) in data.iter().enumerate() {
            if self.skip > 0 {
                self.skip -= 1;
                if self.skip == 0 && self.strings == 0 {
                    ends.push(index + 1);
                }
                continue;
            }
            self.line.push(byte);
            if byte != b'\n' {
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
            self.line.clear();
            let number = line.get(1..).and_then(|text| text.parse().ok());
            match (line.chars().next(), number) {
                (Some('*'), Some(strings)) => self.strings = strings,
                (Some('$'), Some(length)) => {
                    let length: usize = length;
                    self.strings = self.strings.saturating_sub(1);
                    self.skip = length + 2;
                }
                // An inline command.
                _ => ends.push(index + 1),
            }
        }
        ends
    }
}

//! A name server that fails so often, then answers 127.0.0.1 to every question.

use std::net::SocketAddr;

use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Runs on the test's own runtime until dropped.
pub(crate) struct NameServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Answers SERVFAIL to the first `failures` questions for an IPv4 address.
    pub(crate) async fn failing(failures: usize) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            let mut left = failures;
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let reply = answer(&packet[..length], &mut left);
                drop(socket.send_to(&reply, from).await);
            }
        });
        Self { address, task }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// RFC 1035: the header, the question as it came, and at most one address.
fn answer(query: &[u8], failures_left: &mut usize) -> Vec<u8> {
    const TYPE_A: u8 = 1;
    let name_length = query[12..]
        .iter()
        .position(|&byte| byte == 0)
        .expect("a name ends");
    let question_end = 12 + name_length + 5;
    let is_address = query[question_end - 3] == TYPE_A;
    let mut reply = query[..question_end].to_vec();
    reply[2] = 0x81;
    reply[6..12].fill(0);
    if is_address && *failures_left > 0 {
        *failures_left -= 1;
        reply[3] = 0x82;
    } else {
        reply[3] = 0x80;
        if is_address {
            reply[7] = 1;
            // The question's name, type A, class IN, 60 s, 4 bytes.
            reply.extend_from_slice(&[0xc0, 12, 0, TYPE_A, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
        }
    }
    reply
}

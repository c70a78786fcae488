//! Questions over UDP, answered from the address they were sent to.
//!
//! In a sandbox every address is the gateway's, and one socket serves all of them. A
//! client that asked 192.0.2.53 drops an answer that comes from another address,
//! and left to itself the kernel would choose one. So the kernel is asked for each
//! question's address (`IP_PKTINFO`), and told it with the answer.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd as _;

use nix::libc::{in_addr, in_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A socket for questions.
#[derive(Debug)]
pub(super) struct QuestionSocket {
    socket: UdpSocket,
    /// It stands on an IPv4 address, or on all of them.
    is_v4: bool,
}

/// One message, and whom it came from.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) length: usize,
    pub(super) peer: SocketAddr,
    /// The address it was sent to, where that is known.
    asked: Option<Ipv4Addr>,
}

impl QuestionSocket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let is_v4 = socket.local_addr()?.is_ipv4();
        if is_v4 {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        Ok(Self { socket, is_v4 })
    }

    pub(super) async fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        if !self.is_v4 {
            let (length, peer) = self.socket.recv_from(into).await?;
            return Ok(Received { length, peer, asked: None });
        }
        let mut beside = nix::cmsg_space!(in_pktinfo);
        self.socket
            .async_io(Interest::READABLE, || {
                let fd = self.socket.as_raw_fd();
                let mut bytes = [IoSliceMut::new(into)];
                let flags = MsgFlags::empty();
                let read = recvmsg::<SockaddrIn>(fd, &mut bytes, Some(&mut beside), flags)?;
                let peer = read.address.ok_or(io::ErrorKind::InvalidData)?;
                let asked = read.cmsgs()?.find_map(|message| match message {
                    ControlMessageOwned::Ipv4PacketInfo(info) => Some(address(info.ipi_addr)),
                    _ => None,
                });
                let peer = SocketAddrV4::new(peer.ip(), peer.port()).into();
                Ok(Received { length: read.bytes, peer, asked })
            })
            .await
    }

    /// Answers what was received, from the address that was asked.
    pub(super) async fn answer(&self, bytes: &[u8], received: &Received) -> io::Result<()> {
        let (SocketAddr::V4(peer), Some(asked)) = (received.peer, received.asked) else {
            self.socket.send_to(bytes, received.peer).await?;
            return Ok(());
        };
        let peer = SockaddrIn::from(peer);
        let unset = in_addr { s_addr: 0 };
        let from = in_addr { s_addr: u32::from_ne_bytes(asked.octets()) };
        let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: unset };
        self.socket
            .async_io(Interest::WRITABLE, || {
                let beside = [ControlMessage::Ipv4PacketInfo(&info)];
                let bytes = [IoSlice::new(bytes)];
                let fd = self.socket.as_raw_fd();
                Ok(sendmsg(fd, &bytes, &beside, MsgFlags::empty(), Some(&peer))?)
            })
            .await?;
        Ok(())
    }
}

fn address(read: in_addr) -> Ipv4Addr {
    Ipv4Addr::from(read.s_addr.to_ne_bytes())
}

//! Descriptors that go through a socket beside bytes.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use protocol::init::{MAX_LINE_BYTES, MAX_REQUEST_BYTES};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The kernel lets 253 travel with one message.
pub const MAX_DESCRIPTORS: usize = 200;

/// Sends some of `bytes`, and all of `descriptors` with them; how many bytes.
pub fn send_some(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(rustix::io::Errno::TOOMANYREFS);
    }
    retry(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL))
}

/// Sends all of `bytes`, and `descriptors` with the first of them.
pub fn send_all(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let (mut left, mut beside) = (bytes, descriptors);
    while !left.is_empty() {
        let sent = send_some(&socket, left, beside)?;
        left = left.get(sent..).unwrap_or_default();
        beside = &[];
    }
    Ok(())
}

/// Reads once; how many bytes, nothing at the end. Adds the descriptors that came
/// with them.
pub fn receive(
    socket: impl AsFd,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> rustix::io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    // Programs that we start get none of them, unless we say so.
    let received = retry(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut beside, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    Ok(received.bytes)
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done,
        }
    }
}

/// A message as one line, with its end.
pub fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// A message as a frame: its length in four bytes, most significant first, then JSON.
pub fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    if body.len() > MAX_REQUEST_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([length.to_be_bytes().to_vec(), body].concat())
}

/// One line, and what came with it. Not a byte after the line is read: whatever
/// comes next finds everything that is its own.
pub fn receive_line<T: DeserializeOwned>(socket: &UnixStream) -> io::Result<(T, Vec<OwnedFd>)> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    while line.len() < MAX_LINE_BYTES {
        let mut byte = [0];
        if receive(socket, &mut byte, &mut descriptors)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte == *b"\n" {
            return Ok((serde_json::from_slice(&line)?, descriptors));
        }
        line.extend(byte);
    }
    Err(io::Error::other("a line without an end"))
}

/// One frame, and what came with it.
pub fn receive_frame<T: DeserializeOwned>(
    mut socket: &UnixStream,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let mut length = [0; 4];
    let first = receive(socket, &mut length, &mut descriptors)?;
    if let Some(rest) = length.get_mut(first..) {
        socket.read_exact(rest)?;
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_REQUEST_BYTES {
        return Err(io::Error::other("a frame that is too long"));
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body)?;
    Ok((serde_json::from_slice(&body)?, descriptors))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_frame_and_work() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reading, writing) = io::pipe().unwrap();
        send_all(&near, &frame(&"hi").unwrap(), &[writing.as_fd()]).unwrap();
        drop(writing);
        let (body, descriptors): (String, _) = receive_frame(&far).unwrap();
        assert_eq!((body.as_str(), descriptors.len()), ("hi", 1));
        for descriptor in descriptors {
            std::fs::File::from(descriptor).write_all(b"through").unwrap();
        }
        let mut text = String::new();
        reading.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn a_line_takes_nothing_from_the_next() {
        let (near, far) = UnixStream::pair().unwrap();
        let (reading, _writing) = io::pipe().unwrap();
        send_all(&near, &line(&"a line\nof two").unwrap(), &[reading.as_fd()]).unwrap();
        send_all(&near, &line(&2).unwrap(), &[]).unwrap();
        let (first, descriptors): (String, _) = receive_line(&far).unwrap();
        assert_eq!((first.as_str(), descriptors.len()), ("a line\nof two", 1));
        assert_eq!(receive_line::<u8>(&far).unwrap().0, 2);
        drop(near);
        assert!(receive_line::<u8>(&far).is_err());
    }

    #[test]
    fn neither_a_line_nor_a_frame_without_end_is_waited_for() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&[0xff; 8]).unwrap();
        assert!(receive_frame::<String>(&far).is_err());
        let talker = std::thread::spawn(move || while near.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(receive_line::<String>(&far).is_err());
        drop(far);
        talker.join().unwrap();
    }
}

//! Descriptors that go through a socket beside bytes.

use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::wire::LONGEST;
use super::wire::ask::LONGEST_ASK;

/// More than anybody here sends at once.
const MOST: usize = 4;

/// Sends `bytes`, and `descriptors` with the first of them; how many bytes went.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(rustix::io::Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL)
}

/// Sends all of `bytes`.
pub fn send_all(
    socket: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let (mut left, mut beside) = (bytes, descriptors);
    while !left.is_empty() {
        match send(socket, left, beside) {
            Ok(sent) => {
                left = left.get(sent..).unwrap_or_default();
                beside = &[];
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Receives some bytes, and adds the descriptors that came with them.
fn receive(
    socket: impl AsFd,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(into)];
        // Nothing that comes is for programs that we start, unless we say so.
        let received = recvmsg(&socket, slices, &mut beside, RecvFlags::CMSG_CLOEXEC);
        match received {
            Ok(received) => {
                for message in beside.drain() {
                    if let RecvAncillaryMessage::ScmRights(came) = message {
                        descriptors.extend(came);
                    }
                }
                return Ok(received.bytes);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
}

/// One line, without its end, and what came with it. Not a byte after the line
/// is read: whatever comes next finds everything that is its own.
pub fn receive_line(socket: &UnixStream) -> io::Result<(String, Vec<OwnedFd>)> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    while line.len() < LONGEST {
        let mut byte = [0];
        if receive(socket, &mut byte, &mut descriptors)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte == *b"\n" {
            return Ok((String::from_utf8_lossy(&line).into_owned(), descriptors));
        }
        line.extend(byte);
    }
    Err(io::Error::other("a line without an end"))
}

/// One frame, and what came with it.
pub fn receive_frame(mut socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let mut length = [0; 4];
    let first = receive(socket, &mut length, &mut descriptors)?;
    if let Some(rest) = length.get_mut(first..) {
        socket.read_exact(rest)?;
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST_ASK {
        return Err(io::Error::other("a frame that is too long"));
    }
    let mut body = vec![0; length];
    socket.read_exact(&mut body)?;
    Ok((body, descriptors))
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
        send_all(&near, b"\0\0\0\x02hi", &[writing.as_fd()]).unwrap();
        drop(writing);
        let (body, descriptors) = receive_frame(&far).unwrap();
        assert_eq!((body.as_slice(), descriptors.len()), (&b"hi"[..], 1));
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
        send_all(&near, b"started\n", &[reading.as_fd()]).unwrap();
        send_all(&near, b"ended exited 0\n", &[]).unwrap();
        let (line, descriptors) = receive_line(&far).unwrap();
        assert_eq!((line.as_str(), descriptors.len()), ("started", 1));
        assert_eq!(receive_line(&far).unwrap().0, "ended exited 0");
        drop(near);
        assert!(receive_line(&far).is_err());
    }

    #[test]
    fn neither_a_line_nor_a_frame_without_end_is_waited_for() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&[0xff; 8]).unwrap();
        assert!(receive_frame(&far).is_err());
        let talker = std::thread::spawn(move || while near.write_all(&[b'x'; 4096]).is_ok() {});
        assert!(receive_line(&far).is_err());
        drop(far);
        talker.join().unwrap();
    }
}

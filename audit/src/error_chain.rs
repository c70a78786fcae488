//! An error and its causes on one line: `cannot open the log: permission denied`.

use std::error::Error;
use std::fmt;

/// Prints an error, then each cause.
///
/// ```
/// let err = audit::SigningKey::load("/nowhere/seal.pem".as_ref()).unwrap_err();
/// let line = audit::ErrorChain(&err).to_string();
/// assert_eq!(line, "cannot open /nowhere: No such file or directory (os error 2)");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'e>(pub &'e dyn Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut cause = self.0.source();
        while let Some(err) = cause {
            let text = err.to_string();
            // Some errors end with the text of their cause.
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            cause = err.source();
        }
        Ok(())
    }
}

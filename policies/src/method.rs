//! Request methods: the ones we know, and no others.
//!
//! A method decides what a rule lets through, so one whose meaning we do not
//! know cannot be judged and is refused. The list is the methods of RFC 9110,
//! `PATCH`, `QUERY`, and those of WebDAV with its reporting and search
//! extensions, which version control and calendars still speak.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::quoted_input::QuotedInput;

macro_rules! methods {
    ($($method:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[serde(try_from = "String")]
        pub enum Method {
            $($method,)*
        }

        impl Method {
            pub const ALL: [Self; [$($name,)*].len()] = [$(Self::$method,)*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$method => $name,)*
                }
            }
        }
    };
}

methods! {
    Connect "CONNECT",
    Copy "COPY",
    Delete "DELETE",
    Get "GET",
    Head "HEAD",
    Lock "LOCK",
    Mkcol "MKCOL",
    Move "MOVE",
    Options "OPTIONS",
    Patch "PATCH",
    Post "POST",
    Propfind "PROPFIND",
    Proppatch "PROPPATCH",
    Put "PUT",
    Query "QUERY",
    Report "REPORT",
    Search "SEARCH",
    Trace "TRACE",
    Unlock "UNLOCK",
}

impl Method {
    /// Reads a method as it stands in a request or a policy: in upper case.
    ///
    /// ```
    /// use policies::Method;
    ///
    /// assert_eq!(Method::parse("GET")?, Method::Get);
    ///
    /// let err = Method::parse("get").unwrap_err();
    /// assert_eq!(err.to_string(), "`get` is not a method: write `GET`");
    /// # Ok::<(), policies::MethodError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, MethodError> {
        let known = Self::ALL.into_iter();
        match known.clone().find(|method| method.as_str() == written) {
            Some(method) => Ok(method),
            None => Err(MethodError {
                written: QuotedInput::of(written),
                // Methods are case-sensitive, yet many servers fold them: `get`
                // is one method to them and another to us.
                meant: known.into_iter().find(|m| m.as_str().eq_ignore_ascii_case(written)),
            }),
        }
    }

    /// Reads the value of a method-override header.
    ///
    /// Frameworks that honour such headers fold case and trim before they look,
    /// so this does too.
    pub fn parse_override(written: &str) -> Result<Self, MethodError> {
        Self::parse(&written.trim_matches([' ', '\t']).to_ascii_uppercase())
    }

    /// Whether a rule that names no methods allows this one.
    ///
    /// Narrower than "does not change anything": `TRACE` echoes the headers we
    /// added, and the others carry bodies, which is a way out for data.
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options)
    }

    /// Whether the method may change something on the server.
    pub fn mutates(self) -> bool {
        match self {
            Self::Get
            | Self::Head
            | Self::Options
            | Self::Propfind
            | Self::Query
            | Self::Report
            | Self::Search
            | Self::Trace => false,
            Self::Connect
            | Self::Copy
            | Self::Delete
            | Self::Lock
            | Self::Mkcol
            | Self::Move
            | Self::Patch
            | Self::Post
            | Self::Proppatch
            | Self::Put
            | Self::Unlock => true,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for Method {
    type Error = MethodError;

    fn try_from(written: String) -> Result<Self, MethodError> {
        Self::parse(&written)
    }
}

impl Serialize for Method {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for Method {
    fn schema_name() -> Cow<'static, str> {
        "Method".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A request method, in upper case.",
            "type": "string",
            "enum": Self::ALL.map(Self::as_str),
        })
    }
}

/// A method we do not know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MethodError {
    written: QuotedInput,
    meant: Option<Method>,
}

impl std::error::Error for MethodError {}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a method: ", self.written)?;
        match self.meant {
            Some(method) => write!(f, "write `{method}`"),
            None => write!(f, "write one such as `GET` or `POST`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_method_reads_back_and_the_list_is_in_order() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.as_str()), Ok(method));
        }
        assert!(Method::ALL.is_sorted());
    }

    // C8: spellings and inventions.
    macro_rules! refused {
        ($claim:ident, $written:expr, $message:expr) => {
            #[test]
            fn $claim() {
                assert_eq!(Method::parse($written).unwrap_err().to_string(), $message);
            }
        };
    }

    refused!(lower_case, "get", "`get` is not a method: write `GET`");
    refused!(mixed_case, "Delete", "`Delete` is not a method: write `DELETE`");
    refused!(an_invention, "YEET", "`YEET` is not a method: write one such as `GET` or `POST`");
    refused!(nothing, "", "`` is not a method: write one such as `GET` or `POST`");
    refused!(a_space, "GET ", "`GET ` is not a method: write one such as `GET` or `POST`");
    refused!(a_line, "GET\r\n", r"`GET\r\n` is not a method: write one such as `GET` or `POST`");

    #[test]
    fn an_override_is_read_as_generously_as_servers_do() {
        assert_eq!(Method::parse_override(" delete\t"), Ok(Method::Delete));
        assert!(Method::parse_override("delete, get").is_err());
    }

    #[test]
    fn what_is_safe_changes_nothing() {
        let safe: Vec<_> = Method::ALL.into_iter().filter(|m| m.is_safe()).collect();
        assert_eq!(safe, [Method::Get, Method::Head, Method::Options]);
        assert!(safe.iter().all(|method| !method.mutates()));
    }

    #[test]
    fn the_error_of_a_document_says_what_to_write() {
        let err = serde_json::from_str::<Method>(r#""post""#).unwrap_err();
        assert!(err.to_string().starts_with("`post` is not a method: write `POST`"), "{err}");
    }

    proptest! {
        #[test]
        fn only_the_listed_methods_are_methods(written in any::<String>()) {
            let known = Method::ALL.iter().any(|method| method.as_str() == written);
            prop_assert_eq!(Method::parse(&written).is_ok(), known);
        }
    }
}

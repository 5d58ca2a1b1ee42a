//! Our errors for a store's: what was tried, what the store said, and what to do. What a server answers is cut down to its code and
//! message: its whole text can hold keys, signatures and tokens.

use std::error::Error as StdError;
use std::io;

use alluvium_core::{Error, Kind};

/// What a server's code, or the text of a failed request, means.
struct Cause {
    /// One of these is in the text.
    signs: &'static [&'static str],
    kind: Kind,
    hint: &'static str,
}

/// Looked through in order.
const CAUSES: [Cause; 7] = [
    Cause {
        signs: &["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist", "FilesystemNotFound"],
        kind: Kind::Invalid,
        hint: "the bucket or container is not there: make it, or correct its name in the project file",
    },
    Cause {
        signs: &["RequestTimeTooSkewed", "Request date header too old", "RequestExpired"],
        kind: Kind::Unavailable,
        hint: "this machine's clock differs too much from the store's: set it right and run again",
    },
    Cause {
        signs: &[
            "ExpiredToken",
            "TokenRefreshRequired",
            "AuthenticationFailed",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "InvalidToken",
            "InvalidAuthenticationInfo",
            "XAdminUserNotFound",
        ],
        kind: Kind::Invalid,
        hint: "the store does not accept the credentials: check those in the environment (AWS_*, GOOGLE_*, AZURE_*), and that they have not expired",
    },
    Cause {
        signs: &["AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION", "IllegalLocationConstraint"],
        kind: Kind::Invalid,
        hint: "the bucket is in another region: set AWS_REGION to it",
    },
    Cause {
        signs: &["169.254.169.254", "169.254.170.2", "metadata.google.internal", "MissingCredentials", "token/credential"],
        kind: Kind::Invalid,
        hint: "there are no credentials in the environment, and this machine has none of its own: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the variables of GOOGLE_* or AZURE_*",
    },
    Cause {
        signs: &["URL scheme is not allowed"],
        kind: Kind::Invalid,
        hint: "the endpoint is http:// without encryption: use https://, or allow it with AWS_ALLOW_HTTP=true",
    },
    Cause {
        signs: &["error sending request", "dns error", "connect error", "timed out", "Connection refused", "Connect"],
        kind: Kind::Unavailable,
        hint: "the store cannot be reached: check the endpoint and the network, and run again; nothing is lost",
    },
];

/// What stores call an object that is not there.
const MISSING_OBJECT: [&str; 4] = ["NoSuchKey", "NoSuchVersion", "BlobNotFound", "NotFound"];

/// Our error for a store's: `doing` and `what` say what was tried, with what.
#[must_use]
pub fn store_error(error: object_store::Error, doing: &str, what: &str) -> Error {
    use object_store::Error as E;
    if let Some(io) = io_below(&error) {
        let (kind, text) = (io.kind(), io.to_string());
        return with_io_hint(Error::new(Kind::Unavailable, format!("{doing} {what}: {text}")), kind).source(error);
    }
    let said = said(&error);
    let text = said.as_deref().map_or_else(|| error.to_string(), str::to_owned);
    let cause = CAUSES.iter().find(|c| said.is_some() && c.signs.iter().any(|sign| text.contains(sign)));
    let (kind, hint) = match (&error, cause) {
        (_, Some(cause)) => (cause.kind, cause.hint),
        (E::Unauthenticated { .. }, None) => {
            (Kind::Invalid, "the store asks for credentials: set those of AWS_*, GOOGLE_* or AZURE_*")
        }
        (E::PermissionDenied { .. }, None) => {
            (Kind::Unavailable, "the credentials do not allow this: allow listing, reading, writing and deleting there")
        }
        (E::NotImplemented { .. } | E::NotSupported { .. }, None) => (Kind::Unsupported, "the store cannot do this"),
        (E::InvalidPath { .. }, None) => {
            (Kind::Invalid, "another program wrote an object whose name has empty or dotted parts: rename it")
        }
        _ => (Kind::Unavailable, "run again later; nothing is lost"),
    };
    let failed = Error::new(kind, format!("{doing} {what}"));
    match said {
        Some(said) => failed.hint(hint).source(said),
        None if kind == Kind::Unavailable && cause.is_none() => failed.source(error),
        None => failed.hint(hint).source(error),
    }
}

/// Whether the error means that there is no such object, and not that something else is not there: a bucket, a user.
pub(crate) fn object_is_missing(error: &object_store::Error) -> bool {
    let object_store::Error::NotFound { .. } = error else { return false };
    let mut below: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = below {
        if let Some(code) = element(&e.to_string(), "Code") {
            return MISSING_OBJECT.contains(&code);
        }
        below = e.source();
    }
    true
}

/// Whether trying the same again may help.
pub(crate) fn may_pass(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    match error {
        E::Generic { .. } | E::JoinError { .. } => said(error)
            .is_none_or(|text| !CAUSES.iter().any(|c| c.kind == Kind::Invalid && c.signs.iter().any(|s| text.contains(s)))),
        // S3's answer to two conditional puts at once, of which neither may have won.
        E::AlreadyExists { .. } => said(error).is_some_and(|said| said.contains("ConditionalRequestConflict")),
        _ => false,
    }
}

/// Our error for settings that make no store.
pub(crate) fn configuration_error(error: object_store::Error, url: &str, variables: &str) -> Error {
    Error::new(Kind::Invalid, format!("opening {url}: {}", said(&error).unwrap_or_else(|| error.to_string())))
        .hint(format!("check the variables {variables} in the environment"))
}

/// Our error for an I/O error.
pub(crate) fn io_error(error: io::Error, doing: &str, what: &str) -> Error {
    let kind = error.kind();
    with_io_hint(Error::new(Kind::Unavailable, format!("{doing} {what}: {error}")), kind).source(error)
}

fn io_below(error: &object_store::Error) -> Option<&io::Error> {
    // Below a failed request there is an I/O error too, but the request says more.
    if said(error).is_some() {
        return None;
    }
    let mut below: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(e) = below {
        if let Some(io) = e.downcast_ref::<io::Error>() {
            return Some(io);
        }
        below = e.source();
    }
    None
}

/// What a failed request came to, in one line without query strings and without the parts of an answer that can hold secrets;
/// `None` for an error of another kind.
pub(crate) fn said(error: &object_store::Error) -> Option<String> {
    let mut texts = vec![error.to_string()];
    let mut below = StdError::source(error);
    while let Some(e) = below {
        texts.push(e.to_string());
        below = e.source();
    }
    let request = texts.iter().find(|t| t.starts_with("Error performing") || t.starts_with("error sending request"))?;
    let mut said = match request.find('<') {
        Some(answer) => {
            let body = &request[answer..];
            let code = element(body, "Code").or_else(|| element(body, "code"));
            let message = element(body, "Message").or_else(|| element(body, "message"));
            let parts: Vec<&str> =
                [Some(request[..answer].trim_end_matches([':', ' '])), code, message].into_iter().flatten().collect();
            parts.join(": ")
        }
        None => request.clone(),
    };
    // What a broken connection came to stands at the end of the chain.
    if let Some(last) = texts.last().filter(|last| !request.contains(*last) && !last.contains('<')) {
        said = format!("{said}: {last}");
    }
    Some(without_queries(&said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// The first line of an element's text.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let from = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let to = xml[from..].find('<')?;
    xml[from..from + to].lines().next()
}

/// Text without the query strings of the URLs in it: they can hold signatures.
fn without_queries(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.split_once('?') {
        Some((url, _)) if url.contains("://") => url,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn with_io_hint(error: Error, kind: io::ErrorKind) -> Error {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error.hint("the disk is full: free some space and run again; nothing is lost, the batch is taken up again")
        }
        io::ErrorKind::ReadOnlyFilesystem => error.hint("the storage is read-only: mount it writable and run again"),
        io::ErrorKind::PermissionDenied => error.hint("check the owner and the permissions of that path"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(variant: fn(Box<dyn StdError + Send + Sync>) -> object_store::Error, text: &str) -> Error {
        store_error(variant(text.into()), "reading", "default/x.json")
    }

    fn generic(source: Box<dyn StdError + Send + Sync>) -> object_store::Error {
        object_store::Error::Generic { store: "S3", source }
    }

    fn denied(source: Box<dyn StdError + Send + Sync>) -> object_store::Error {
        object_store::Error::PermissionDenied { path: "default/x.json".to_owned(), source }
    }

    #[test]
    fn what_a_server_answers_becomes_a_kind_a_hint_and_no_secret() {
        let performing = |code: &str| {
            format!(
                "Error performing GET http://127.0.0.1:9/b/x?X-Amz-Signature=5ecret in 1ms - Server returned non-2xx status code: 403 Forbidden: \
                 <?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message><AWSAccessKeyId>AKIA5ecret</AWSAccessKeyId></Error>"
            )
        };
        for (code, kind, hint) in [
            ("SignatureDoesNotMatch", Kind::Invalid, "credentials"),
            ("InvalidAccessKeyId", Kind::Invalid, "credentials"),
            ("RequestTimeTooSkewed", Kind::Unavailable, "clock"),
            ("AccessDenied", Kind::Unavailable, "do not allow"),
            ("NoSuchBucket", Kind::Invalid, "not there"),
        ] {
            let error = answered(denied, &performing(code));
            assert_eq!(error.kind(), kind, "{code}");
            let text = format!("{} {}", error.chain_text(), error.hint_text().unwrap_or_default());
            assert!(text.contains(code) && text.contains(hint) && text.contains("reading default/x.json"), "{text}");
            assert!(!text.contains("5ecret"), "{text}");
        }
    }

    #[test]
    fn an_object_that_is_missing_is_told_from_a_bucket_that_is() {
        let missing = |code: &str| {
            let source = format!("Error performing GET http://h/b/x in 1ms - 404 Not Found: <Error><Code>{code}</Code></Error>");
            object_is_missing(&object_store::Error::NotFound { path: "x".to_owned(), source: source.into() })
        };
        assert!(missing("NoSuchKey") && missing("BlobNotFound"));
        assert!(!missing("NoSuchBucket") && !missing("ContainerNotFound") && !missing("XAdminUserNotFound"));
        assert!(object_is_missing(&object_store::Error::NotFound { path: "x".to_owned(), source: "no file".into() }));
        assert!(!object_is_missing(&denied("no".into())));
    }

    #[test]
    fn a_store_that_cannot_be_reached_is_unavailable_and_says_so() {
        let error = answered(
            generic,
            "Error performing PUT http://127.0.0.1:9/b/x in 30s, after 10 retries, max_retries: 10, retry_timeout: 30s  - HTTP error: error sending request",
        );
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.hint_text().unwrap_or_default().contains("cannot be reached"));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_may_not_is_not() {
        assert!(may_pass(&generic("Error performing PUT http://h/b in 1s - Server returned non-2xx status code: 503".into())));
        assert!(!may_pass(&generic(
            "Error performing PUT http://h/b in 1s - <Error><Code>InvalidAccessKeyId</Code></Error>".into()
        )));
        assert!(!may_pass(&denied("no".into())));
        let exists = |text: &str| object_store::Error::AlreadyExists { path: "p".to_owned(), source: text.into() };
        assert!(may_pass(&exists(
            "Error performing PUT http://h/b in 1s - <Error><Code>ConditionalRequestConflict</Code></Error>"
        )));
        assert!(!may_pass(&exists("Error performing PUT http://h/b in 1s - <Error><Code>PreconditionFailed</Code></Error>")));
    }
}

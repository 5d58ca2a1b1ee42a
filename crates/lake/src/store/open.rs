//! Opening a store by the URL that a project file names. Credentials and endpoints come from the environment (`AWS_*`,
//! `GOOGLE_*`, `AZURE_*`, as `object_store` reads them), so that none stands in a file.
//!
//! Requests are tried again on throttling, on 5xx and on lost connections, with backoff and within bounds that are set here. What
//! a put whose answer was lost has done is found out in [`super::Store`], not here.

use std::sync::Arc;
use std::time::Duration;

use alluvium_core::{Error, Kind, Result};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use url::Url;

use super::error::configuration_error;
use super::patience::Patient;

/// A request is tried again so many times.
const MAX_RETRIES: usize = 20;
/// A request that has failed for so long is not tried again. With the connection's own limit this bounds how long a store that
/// cannot be reached keeps a command waiting.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// The shortest pause before a request is tried again.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// Each pause is random, at most so many times as long as the one before: with two the pauses would not grow.
const BACKOFF_BASE: f64 = 4.0;
/// The longest pause.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// A place in an object store.
#[derive(Debug, Clone)]
pub struct Location {
    /// The store: a whole bucket or container.
    pub store: Arc<dyn ObjectStore>,
    /// The place in it.
    pub prefix: Path,
    /// Which store it is: equal for two places of one bucket.
    pub identity: String,
}

impl Location {
    /// Whether `text`, from a project file, is the URL of an object store; else it is a local path.
    #[must_use]
    pub fn is_url(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| scheme != "file" && !scheme.contains(['/', '.']))
    }

    /// Opens the place that a URL names: `s3://bucket/path`, `gs://bucket/path`, `abfss://container@account.dfs.core.windows.net/path`
    /// or `az://container/path`. Nothing is read yet.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if the URL or the environment is not right; mend it.
    pub fn open(text: &str) -> Result<Self> {
        let invalid = |why: String| {
            Error::new(Kind::Invalid, format!("opening {text}: {why}"))
                .hint("write s3://BUCKET/PATH, gs://BUCKET/PATH, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH or az://CONTAINER/PATH")
        };
        let url = Url::parse(text).map_err(|e| invalid(e.to_string()))?;
        if url.password().is_some() {
            return Err(Error::new(Kind::Invalid, format!("opening a store of {}: the URL holds a password", url.scheme()))
                .hint("credentials come from the environment: take them out of the URL"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("a URL of a store has no `?` and no `#`".to_owned()));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(invalid("it names no bucket".to_owned()));
        }
        let prefix = Path::from_url_path(url.path()).map_err(|e| invalid(e.to_string()))?;
        let bucket = &url[url::Position::BeforeUsername..url::Position::AfterHost];
        let (store, endpoint) = match url.scheme() {
            "s3" | "s3a" => s3(text)?,
            "gs" => gcs(text)?,
            "abfss" | "abfs" | "az" => azure(text)?,
            scheme => return Err(invalid(format!("stores of the kind {scheme:?} are not supported"))),
        };
        let identity = match endpoint {
            Some(endpoint) => format!("{}://{bucket} at {endpoint}", url.scheme()),
            None => format!("{}://{bucket}", url.scheme()),
        };
        Ok(Self { store: Arc::new(Patient::new(store, identity.clone())), prefix, identity })
    }
}

type Built = (Arc<dyn ObjectStore>, Option<String>);

fn s3(url: &str) -> Result<Built> {
    // Without conditional puts nothing here is safe, whatever the environment says of them.
    let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry()).with_conditional_put(S3ConditionalPut::ETagMatch);
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let allow_http = builder.get_config_value(&AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    refuse_plain_http(url, endpoint.as_deref(), allow_http.as_deref(), "AWS_ALLOW_HTTP")?;
    let store = builder.build().map_err(|e| configuration_error(e, url, "AWS_*"))?;
    Ok((Arc::new(store), endpoint.map(without_user)))
}

fn gcs(url: &str) -> Result<Built> {
    let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry());
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    let allow_http = builder.get_config_value(&GoogleConfigKey::Client(ClientConfigKey::AllowHttp));
    refuse_plain_http(url, endpoint.as_deref(), allow_http.as_deref(), "GOOGLE_ALLOW_HTTP")?;
    let store = builder.build().map_err(|e| configuration_error(e, url, "GOOGLE_*"))?;
    Ok((Arc::new(store), endpoint.map(without_user)))
}

fn azure(url: &str) -> Result<Built> {
    let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry());
    let emulator = builder.get_config_value(&AzureConfigKey::UseEmulator).as_deref() == Some("true");
    let endpoint = match emulator {
        true => Some(std::env::var("AZURITE_BLOB_STORAGE_URL").unwrap_or_else(|_| "the emulator".to_owned())),
        false => {
            let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
            let allow_http = builder.get_config_value(&AzureConfigKey::Client(ClientConfigKey::AllowHttp));
            refuse_plain_http(url, endpoint.as_deref(), allow_http.as_deref(), "AZURE_ALLOW_HTTP")?;
            endpoint.or_else(|| builder.get_config_value(&AzureConfigKey::AccountName))
        }
    };
    let store = builder.build().map_err(|e| configuration_error(e, url, "AZURE_*"))?;
    Ok((Arc::new(store), endpoint.map(without_user)))
}

fn retry() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: FIRST_BACKOFF, max_backoff: MAX_BACKOFF, base: BACKOFF_BASE };
    RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT }
}

fn refuse_plain_http(url: &str, endpoint: Option<&str>, allowed: Option<&str>, variable: &str) -> Result<()> {
    let plain = endpoint.is_some_and(|e| e.trim_start().to_ascii_lowercase().starts_with("http://"));
    if plain && !allowed.is_some_and(|a| a.eq_ignore_ascii_case("true") || a == "1") {
        return Err(Error::new(Kind::Invalid, format!("opening {url}: its endpoint is http:// without encryption"))
            .hint(format!("use https://, or set {variable}=true if the network may see what is sent")));
    }
    Ok(())
}

/// An endpoint without what stands before its host.
fn without_user(endpoint: String) -> String {
    match Url::parse(&endpoint) {
        Ok(mut url) => {
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.set_query(None);
            url.to_string().trim_end_matches('/').to_owned()
        }
        Err(_) => "an endpoint of its own".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn urls_of_stores_are_told_from_local_paths() {
        for url in ["s3://b/p", "gs://b", "abfss://c@a.dfs.core.windows.net/p", "az://c/p"] {
            assert!(Location::is_url(url), "{url}");
        }
        for path in ["./lake", "/srv/lake", "file:///srv/lake", "../a://b", "a/b://c", "C:\\lake"] {
            assert!(!Location::is_url(path), "{path}");
        }
    }

    #[test]
    fn a_url_that_names_no_place_or_holds_a_password_is_refused_without_repeating_it() {
        for (url, says) in [
            ("s3:///path", "names no bucket"),
            ("ftp://host/path", "\"ftp\" are not supported"),
            ("s3://b/p?versionId=1", "no `?`"),
            ("s3://b/a//b", "b/a//b"),
        ] {
            let error = Location::open(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{url}");
            assert!(error.message().contains(says), "{url}: {error}");
        }
        let error = Location::open("s3://key:hunter2@bucket/p").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn plain_http_is_refused_unless_it_is_allowed() {
        let plain = |allowed| refuse_plain_http("s3://b", Some("HTTP://127.0.0.1:9000"), allowed, "AWS_ALLOW_HTTP");
        assert!(plain(None).unwrap_err().to_string().contains("AWS_ALLOW_HTTP=true"));
        assert_eq!(plain(Some("false")).unwrap_err().kind(), Kind::Invalid);
        assert!(plain(Some("true")).is_ok());
        assert!(refuse_plain_http("s3://b", Some("https://example.com"), None, "AWS_ALLOW_HTTP").is_ok());
    }

    #[test]
    fn the_name_of_an_endpoint_holds_no_user_and_no_token() {
        assert_eq!(without_user("https://me:secret@host:9000/?sig=abc".to_owned()), "https://host:9000");
    }
}

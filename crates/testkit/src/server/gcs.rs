//! Google Cloud Storage by fake-gcs-server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use object_store::ClientConfigKey;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use super::{BUCKET, Server, StoreKind, TestStore, free_address, new_directory, pairs, program};

pub(super) fn start() -> Option<TestStore> {
    let program = program("ALLUVIUM_TEST_FAKE_GCS", "fake-gcs-server")?;
    let (address, directory) = (free_address(), new_directory("gcs"));
    let url = format!("http://{address}");
    let mut command = Command::new(program);
    command.args(["-scheme", "http", "-host", "127.0.0.1", "-port", &address.port().to_string(), "-backend", "memory"]);
    command.args(["-public-host", &address.to_string(), "-external-url", &url, "-log-level", "error"]);
    let server = Server::start(command, address, directory);
    let body = format!("{{\"name\":\"{BUCKET}\"}}");
    let request = format!(
        "POST /storage/v1/b?project=test HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    TcpStream::connect(address)
        .and_then(|mut stream| stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)))
        .unwrap_or_else(|e| panic!("making a bucket: {e}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "making a bucket: {answer}");
    let store = GoogleCloudStorageBuilder::new()
        .with_base_url(&url)
        .with_skip_signature(true)
        .with_bucket_name(BUCKET)
        .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true")
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    Some(TestStore {
        kind: StoreKind::Gcs,
        storage: format!("gs://{BUCKET}/lake"),
        env: pairs(&[("GOOGLE_BASE_URL", &url), ("GOOGLE_SKIP_SIGNATURE", "true"), ("GOOGLE_ALLOW_HTTP", "true")]),
        store: Arc::new(store),
        address: Some(address),
        _server: Some(server),
    })
}

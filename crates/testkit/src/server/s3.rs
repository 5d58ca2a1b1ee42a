//! S3 by versitygw, which keeps objects in a directory and does conditional puts right.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;

use super::{BUCKET, Server, StoreKind, TestStore, free_address, new_directory, pairs, program};

const KEY: &str = "alluvium";
const SECRET: &str = "alluvium-test-5ecret";

pub(super) fn start() -> Option<TestStore> {
    let program = program("ALLUVIUM_TEST_VERSITYGW", "versitygw")?;
    let (address, directory) = (free_address(), new_directory("s3"));
    fs::create_dir_all(directory.join("data").join(BUCKET)).unwrap_or_else(|e| panic!("making a bucket: {e}"));
    let mut command = Command::new(program);
    command.args(["--port", &address.to_string(), "--quiet", "--keep-alive", "posix"]).arg(directory.join("data"));
    command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
    let server = Server::start(command, address, directory);
    let endpoint = format!("http://{address}");
    let store = AmazonS3Builder::new()
        .with_endpoint(&endpoint)
        .with_allow_http(true)
        .with_bucket_name(BUCKET)
        .with_region("us-east-1")
        .with_access_key_id(KEY)
        .with_secret_access_key(SECRET)
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    Some(TestStore {
        kind: StoreKind::S3,
        storage: format!("s3://{BUCKET}/lake"),
        env: pairs(&[
            ("AWS_ENDPOINT_URL", &endpoint),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
        ]),
        store: Arc::new(store),
        address: Some(address),
        _server: Some(server),
    })
}

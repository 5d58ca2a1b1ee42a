//! Azure Blob Storage by Azurite. Its account and key are those that every emulator of Azure has, and are published.

use std::process::Command;
use std::sync::Arc;

use object_store::azure::MicrosoftAzureBuilder;

use super::{BUCKET, Server, StoreKind, TestStore, free_address, new_directory, pairs, program};

const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes the container: the one request that `object_store` does not know.
const MAKE_CONTAINER: &str = r#"
const [base, account, key, container] = process.argv.slice(1);
const date = new Date().toUTCString(), version = '2021-08-06';
const text = ['PUT', '', '', '', '', '', '', '', '', '', '', '', `x-ms-date:${date}`, `x-ms-version:${version}`,
  `/${account}/${account}/${container}`, 'restype:container'].join('\n');
const sign = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(text, 'utf8').digest('base64');
fetch(`${base}/${account}/${container}?restype=container`, { method: 'PUT',
  headers: { 'x-ms-date': date, 'x-ms-version': version, authorization: `SharedKey ${account}:${sign}` } })
  .then(async r => { if (r.status !== 201) { console.error(r.status, await r.text()); process.exit(1); } });
"#;

pub(super) fn start() -> Option<TestStore> {
    let program_file = program("ALLUVIUM_TEST_AZURITE", "azurite-blob")?;
    let node = program("ALLUVIUM_TEST_NODE", "node")?;
    let (address, directory) = (free_address(), new_directory("azure"));
    let mut command = Command::new(&node);
    command.arg(program_file).args(["--blobHost", "127.0.0.1", "--blobPort", &address.port().to_string(), "--location"]);
    command.arg(directory.join("data")).args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"]);
    let server = Server::start(command, address, directory);
    let url = format!("http://{address}");
    let made = Command::new(node).args(["-e", MAKE_CONTAINER, &url, ACCOUNT, KEY, BUCKET]).output();
    let made = made.unwrap_or_else(|e| panic!("running node: {e}"));
    assert!(made.status.success(), "making a container: {}", String::from_utf8_lossy(&made.stderr));
    let store = MicrosoftAzureBuilder::new()
        .with_account(ACCOUNT)
        .with_access_key(KEY)
        .with_container_name(BUCKET)
        .with_endpoint(format!("{url}/{ACCOUNT}"))
        .with_allow_http(true)
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    Some(TestStore {
        kind: StoreKind::Azure,
        storage: format!("az://{BUCKET}/lake"),
        env: pairs(&[("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", &url), ("AZURE_ALLOW_HTTP", "true")]),
        store: Arc::new(store),
        address: Some(address),
        _server: Some(server),
    })
}

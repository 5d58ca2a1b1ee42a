//! `alluvium namespace`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::Arc;

use alluvium_core::{Error, Kind, Namespace, Result};
use alluvium_engine::Stop;
use serde_json::json;

use crate::args::{Global, NamespaceCommand, Output};
use crate::progress::Progress;
use crate::{context, memory, output};

/// Lists namespaces, or deletes one.
pub async fn namespace(global: &Global, command: &NamespaceCommand) -> Result<u8> {
    match command {
        NamespaceCommand::List => {
            let engine =
                context::reading_engine(global, memory::budget(None)?, Arc::new(Progress::new(global.output)), Stop::default())?;
            for name in engine.namespaces().await? {
                match global.output {
                    Output::Json => output::json(&json!({ "namespace": name }))?,
                    Output::Text => output::line(&name)?,
                }
            }
        }
        NamespaceCommand::Delete { name, yes } => {
            Namespace::parse(name).map_err(|e| Error::new(Kind::Invalid, e.to_string()))?;
            let global = Global { namespace: Some(name.clone()), ..global.clone() };
            let engine =
                context::engine(&global, memory::budget(None)?, Arc::new(Progress::new(global.output)), Stop::default())?;
            let owned = engine.check_namespace_deletable().await?;
            if !yes {
                ask(name, owned.objects, owned.bytes)?;
            }
            let deleted = engine.delete_namespace().await?;
            match global.output {
                Output::Json => output::json(&json!({ "namespace": name, "objects": deleted.objects, "bytes": deleted.bytes }))?,
                Output::Text => {
                    eprintln!("deleted {name}: {} objects, {}", output::number(deleted.objects), output::bytes(deleted.bytes))
                }
            }
        }
    }
    Ok(0)
}

fn ask(name: &str, objects: u64, bytes: u64) -> Result<()> {
    let refused = |text: &str| Error::new(Kind::Invalid, text.to_owned()).hint("to delete it without being asked, say --yes");
    if !io::stdin().is_terminal() {
        return Err(refused("deleting a namespace asks first, and there is no terminal to ask at"));
    }
    eprint!("delete namespace {name} with {} objects, {}? type its name: ", output::number(objects), output::bytes(bytes));
    io::stderr().flush().ok();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(|e| Error::new(Kind::Unavailable, "reading the answer").source(e))?;
    if answer.trim() == name { Ok(()) } else { Err(refused("not deleted")) }
}

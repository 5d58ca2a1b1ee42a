//! Namespaces as a whole: which there are, and the end of one.

use alluvium_core::{Error, Incarnation, Job, Kind, Result, Shard, Source};
use alluvium_lake::{
    Holder, LeaseWatch, Owned, delete_namespace, list_namespaces, mark_for_deletion, namespace_owns, open_namespace,
    unmark_for_deletion,
};

use crate::engine::Engine;
use crate::ingest::{lease_name, replay_lease_name, shard_lease_name};

/// How long to wait before looking again whether a lease moves.
const LEASE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

impl Engine {
    /// The namespaces in the project's storage.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] if the store failed.
    pub async fn namespaces(&self) -> Result<Vec<String>> {
        list_namespaces(&self.store).await
    }

    /// What deleting this engine's namespace would remove.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if it was never used, [`Kind::Conflict`] if a batch is under way in it.
    pub async fn check_namespace_deletable(&self) -> Result<Owned> {
        let owned = namespace_owns(&self.store, &self.resolver).await?;
        if owned.objects == 0 {
            return Err(Error::new(Kind::NotFound, format!("there is no namespace {}", self.resolver.namespace()))
                .hint("see: alluvium namespace list"));
        }
        match open_namespace(&self.store, &self.resolver).await {
            Ok(Some(incarnation)) => self.refuse_while_running(&incarnation).await?,
            // A deletion that was interrupted is finished.
            Ok(None) => {}
            Err(e) if e.kind() == Kind::Conflict => {}
            Err(e) => return Err(e),
        }
        Ok(owned)
    }

    async fn refuse_while_running(&self, incarnation: &Incarnation) -> Result<()> {
        for dataset in &self.project.datasets {
            let shards = self.shards(dataset).await?;
            let mut names = vec![lease_name(dataset), replay_lease_name(dataset)];
            if matches!(dataset.source, Source::Kafka(_)) {
                names.extend(shards.iter().filter(|s| **s != Shard::REPLAY).map(|s| shard_lease_name(dataset, *s)));
            }
            let watch = |name: &String| LeaseWatch::new(&self.store, &self.resolver, name, self.project.lease_ttl);
            let mut watches: Vec<LeaseWatch> = names.iter().map(watch).collect();
            while let Some(watch) = watches.last_mut() {
                match watch.holder().await? {
                    Holder::Nobody => drop(watches.pop()),
                    Holder::Unknown => self.store.machine().sleep(LEASE_INTERVAL).await,
                    Holder::Alive => {
                        return Err(Error::new(
                            Kind::Conflict,
                            format!("a process takes in dataset {} in namespace {}", dataset.name, self.resolver.namespace()),
                        )
                        .hint("stop it first"));
                    }
                }
            }
            for shard in shards {
                let listing = self.chain(incarnation, Job::Ingest, dataset, shard).listing().await?;
                if let Some(newest) = listing.newest().filter(|k| !listing.done.contains(&k.batch)) {
                    return Err(Error::new(
                        Kind::Conflict,
                        format!("batch {newest} of dataset {} is under way in namespace {}", dataset.name, self.resolver.namespace()),
                    )
                    .hint("stop the processes that work there; a batch that a dead process left is finished by: alluvium run ingest"));
                }
            }
        }
        Ok(())
    }

    /// Deletes this engine's namespace: exactly what it owns. May be repeated until it succeeds.
    ///
    /// # Errors
    /// As [`Engine::check_namespace_deletable`]; [`Kind::Unavailable`] if the store failed: delete again.
    ///
    /// # Cancel safety
    /// Cancelled anywhere, the namespace stays marked as being deleted until another deletion ends.
    pub async fn delete_namespace(&self) -> Result<Owned> {
        self.check_namespace_deletable().await?;
        if let Some(incarnation) = mark_for_deletion(&self.store, &self.resolver).await? {
            // A batch that was recorded before the mark is published by those who do not know of it: see `Engine::check_life`.
            if let Err(e) = self.refuse_while_running(&incarnation).await {
                unmark_for_deletion(&self.store, &self.resolver).await?;
                return Err(e);
            }
        }
        delete_namespace(&self.store, &self.resolver).await
    }
}

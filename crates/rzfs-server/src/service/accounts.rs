//! Usage and quotas of users, groups and projects of a file system.

use crate::protocol::{
    AccountOwner, AccountQuery, AccountReport, Refusal, RefusalKind, ShareReport,
};
use rzfs_dsl::dataset::{DatasetError, DatasetTree};
use rzfs_format::fuid::{Fuid, FuidTable};
use rzfs_format::objset::ObjsetType;
use rzfs_zpl::{Account, QuotaOwner, Share, ZplError, stored_accounts, stored_domains};

/// The queried accounts, by owner and number.
pub(super) fn report(
    tree: &DatasetTree,
    query: &AccountQuery,
) -> Result<Vec<AccountReport>, Refusal> {
    let name = &query.dataset;
    let unopened = |reason: &dyn std::fmt::Display| {
        Refusal::of_kind(RefusalKind::Unopened, format!("cannot open '{name}': {reason}"))
    };
    let objset = tree.open(name).and_then(|dataset| dataset.open_objset());
    let objset = objset.map_err(|error| match error {
        DatasetError::NotFound { .. } => unopened(&"dataset does not exist"),
        error => unopened(&error),
    })?;
    if objset.objset_type() != ObjsetType::Zfs {
        return Err(unopened(&"operation not applicable to datasets of this type"));
    }
    let unread =
        |error: ZplError| Refusal::new(format!("cannot get used/quota for {name}: {error}"));
    let domains = stored_domains(&objset).map_err(unread)?;
    let mut reports = Vec::new();
    for owner in &query.owners {
        let whose = match owner {
            AccountOwner::User => QuotaOwner::User,
            AccountOwner::Group => QuotaOwner::Group,
            AccountOwner::Project => QuotaOwner::Project,
        };
        let accounts = stored_accounts(&objset, whose).map_err(unread)?;
        let report = |(id, account)| account_of(*owner, id, account, &domains);
        reports.extend(accounts.into_iter().map(report));
    }
    Ok(reports)
}

/// A domain without a name is empty.
fn account_of(
    owner: AccountOwner,
    id: Fuid,
    account: Account,
    domains: &FuidTable,
) -> AccountReport {
    let name = |index| domains.domain(index).map(ToString::to_string).unwrap_or_default();
    let share = |share: Share| ShareReport { used: share.used, quota: share.quota };
    AccountReport {
        owner,
        domain: Some(id.domain()).filter(|index| *index != 0).map(name),
        id: id.number(),
        bytes: account.bytes.map(share),
        objects: account.objects.map(share),
    }
}

//! One account for each sender: the bytes of its segments, and its shares of the sets that hold them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Overhead of an account in bytes, without its name. For the first sender of a set the overhead of the set covers it;
/// every other sender is charged with it for each of its segments.
pub(super) const ACCOUNT_BYTES: usize = 128;

/// The number of a sender's account, valid while it holds anything. The lowest bit tells whether its
/// identity is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SenderId(NonZeroU32);

impl SenderId {
    fn new(number: u32, authenticated: bool) -> Option<Self> {
        NonZeroU32::new(number << 1)?;
        NonZeroU32::new(number << 1 | u32::from(authenticated)).map(SenderId)
    }

    pub fn is_authenticated(self) -> bool {
        self.0.get() & 1 == 1
    }
}

/// An identity: a proven one and a claimed one of the same name are different senders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    authenticated: bool,
    name: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Account {
    identity: Identity,
    bytes: u64,
    shares: u64,
    /// Shares and segments that refer to the account, and receipts under way.
    references: u64,
}

/// Charges by sender and in total.
#[derive(Debug, Default)]
pub(super) struct SenderAccounts {
    /// A tree, which gives memory back though later accounts stay.
    accounts: BTreeMap<SenderId, Account>,
    /// The number given last.
    last: u32,
    index: BTreeMap<Identity, SenderId>,
    /// Accounts with a share.
    holders: u64,
    /// Bytes of claimed identities, then of proven ones.
    pools: [u64; 2],
    /// Sets with segments of claimed identities.
    claimed_sets: u64,
}

impl SenderAccounts {
    /// The sender's account, opened where there is none. It stays until it is given back with
    /// [`SenderAccounts::release`], though all that the sender holds be evicted meanwhile.
    pub fn open(&mut self, name: Option<&str>, authenticated: bool) -> SenderId {
        // A name that is absent proves nothing.
        let authenticated = authenticated && name.is_some();
        let identity = Identity {
            authenticated,
            name: name.map(Arc::from),
        };
        if let Some(id) = self.index.get(&identity) {
            let id = *id;
            self.account_mut(id).references += 1;
            return id;
        }
        let account = Account {
            identity: identity.clone(),
            bytes: 0,
            shares: 0,
            references: 1,
        };
        let id = loop {
            self.last = self.last.wrapping_add(1);
            let id = SenderId::new(self.last, authenticated);
            if let Some(id) = id.filter(|id| !self.accounts.contains_key(id)) {
                break id;
            }
        };
        self.accounts.insert(id, account);
        self.index.insert(identity, id);
        id
    }

    /// Keeps an account until it is given back with [`SenderAccounts::release`].
    pub fn keep(&mut self, id: SenderId) {
        self.account_mut(id).references += 1;
    }

    /// Gives back what [`SenderAccounts::open`] gave. The account is closed where nothing was charged to it.
    pub fn release(&mut self, id: SenderId) {
        self.account_mut(id).references -= 1;
        self.close_if_unused(id);
    }

    /// Removes an account that nothing refers to.
    fn close_if_unused(&mut self, id: SenderId) {
        if self.account(id).references == 0
            && let Some(account) = self.accounts.remove(&id)
        {
            self.index.remove(&account.identity);
        }
    }

    fn account(&self, id: SenderId) -> &Account {
        self.accounts
            .get(&id)
            .expect("what refers to an account keeps it")
    }

    fn account_mut(&mut self, id: SenderId) -> &mut Account {
        self.accounts
            .get_mut(&id)
            .expect("what refers to an account keeps it")
    }

    /// The pool that an account's charges count in as well.
    fn pool_of(&mut self, id: SenderId) -> &mut u64 {
        &mut self.pools[usize::from(id.is_authenticated())]
    }

    pub fn name(&self, id: SenderId) -> Option<&str> {
        self.account(id).identity.name.as_deref()
    }

    /// Sets that hold segments of the sender.
    pub fn shares(&self, id: SenderId) -> u64 {
        self.account(id).shares
    }

    pub fn bytes(&self, id: SenderId) -> u64 {
        self.account(id).bytes
    }

    /// Bytes over all senders.
    pub fn total_bytes(&self) -> u64 {
        self.pools.iter().sum()
    }

    /// Sets with segments of the senders whose identity is only claimed, and those segments' bytes.
    pub fn claimed(&self) -> (u64, u64) {
        (self.claimed_sets, self.pools[0])
    }

    /// A set had segments of claimed identities, or not, and now has some, or not.
    pub fn count_claimed(&mut self, had: bool, has: bool) {
        self.claimed_sets = self.claimed_sets + u64::from(has) - u64::from(had);
    }

    /// Number of senders that hold anything.
    pub fn senders(&self) -> u64 {
        self.holders
    }

    /// Accounts that anything refers to.
    #[cfg(test)]
    pub fn accounts_open(&self) -> usize {
        self.accounts.len()
    }

    /// The sender has `bytes` more, in a share that is open.
    pub fn charge(&mut self, id: SenderId, bytes: u64) {
        self.account_mut(id).bytes += bytes;
        *self.pool_of(id) += bytes;
    }

    pub fn refund(&mut self, id: SenderId, bytes: u64) {
        self.account_mut(id).bytes -= bytes;
        *self.pool_of(id) -= bytes;
    }

    pub fn open_share(&mut self, id: SenderId) {
        let account = self.account_mut(id);
        account.shares += 1;
        account.references += 1;
        self.holders += u64::from(self.account(id).shares == 1);
    }

    /// Closes a share whose bytes were refunded.
    pub fn close_share(&mut self, id: SenderId) {
        let account = self.account_mut(id);
        account.shares -= 1;
        account.references -= 1;
        self.holders -= u64::from(self.account(id).shares == 0);
        self.close_if_unused(id);
    }
}

#[cfg(test)]
mod tests {
    use super::SenderAccounts;

    #[test]
    fn a_proof_without_a_name_proves_nothing() {
        let mut accounts = SenderAccounts::default();
        let nobody = accounts.open(None, true);
        assert!(!nobody.is_authenticated());
        assert_eq!(accounts.open(None, false), nobody);
    }
}

//! What each sender holds: bytes for its own segments, sets for those it began.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What an account takes beside its name. The first sender of a set has it in the set's share; for
/// every segment that another sends to the set, the account is charged with the segment.
pub(super) const ACCOUNT_BYTES: usize = 128;

/// A sender's place in the ledger, valid while it holds anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SenderId(u32);

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
    sets: u64,
    /// Segments and sets that refer to the account, and receipts under way.
    references: u64,
}

/// Charges by sender and in total.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// A tree, which gives memory back though later accounts stay.
    accounts: BTreeMap<SenderId, Account>,
    next: u32,
    index: BTreeMap<Identity, SenderId>,
    /// Sets and bytes of claimed identities, then of proven ones.
    pools: [(u64, u64); 2],
}

impl Ledger {
    /// The sender's account, opened where there is none. It stays until it is given back with
    /// [`Ledger::release`], though all that the sender holds be evicted meanwhile.
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
            sets: 0,
            references: 1,
        };
        while self.accounts.contains_key(&SenderId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = SenderId(self.next);
        self.next = self.next.wrapping_add(1);
        self.accounts.insert(id, account);
        self.index.insert(identity, id);
        id
    }

    /// Gives back what [`Ledger::open`] gave. The account is closed where nothing was charged to it.
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
    fn pool_of(&mut self, id: SenderId) -> &mut (u64, u64) {
        &mut self.pools[usize::from(self.is_authenticated(id))]
    }

    pub fn name(&self, id: SenderId) -> Option<&str> {
        self.account(id).identity.name.as_deref()
    }

    pub fn is_authenticated(&self, id: SenderId) -> bool {
        self.account(id).identity.authenticated
    }

    pub fn sets(&self, id: SenderId) -> u64 {
        self.account(id).sets
    }

    pub fn bytes(&self, id: SenderId) -> u64 {
        self.account(id).bytes
    }

    /// Sets and bytes over all senders.
    pub fn totals(&self) -> (u64, u64) {
        let [claimed, proven] = self.pools;
        (claimed.0 + proven.0, claimed.1 + proven.1)
    }

    /// Sets and bytes of the senders whose identity is only claimed.
    pub fn claimed(&self) -> (u64, u64) {
        self.pools[0]
    }

    /// Number of senders that hold anything.
    pub fn senders(&self) -> u64 {
        self.index.len() as u64
    }

    pub fn charge(&mut self, id: SenderId, bytes: u64) {
        let account = self.account_mut(id);
        account.bytes += bytes;
        account.references += 1;
        self.pool_of(id).1 += bytes;
    }

    pub fn refund(&mut self, id: SenderId, bytes: u64) {
        let account = self.account_mut(id);
        account.bytes -= bytes;
        account.references -= 1;
        self.pool_of(id).1 -= bytes;
        self.close_if_unused(id);
    }

    pub fn open_set(&mut self, id: SenderId) {
        let account = self.account_mut(id);
        account.sets += 1;
        account.references += 1;
        self.pool_of(id).0 += 1;
    }

    pub fn close_set(&mut self, id: SenderId) {
        let account = self.account_mut(id);
        account.sets -= 1;
        account.references -= 1;
        self.pool_of(id).0 -= 1;
        self.close_if_unused(id);
    }
}

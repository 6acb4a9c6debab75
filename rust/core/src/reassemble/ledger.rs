//! What each sender holds: bytes for its own segments, sets for those it began.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    accounts: Vec<Account>,
    free: Vec<u32>,
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
            self.accounts[id.0 as usize].references += 1;
            return *id;
        }
        let account = Account {
            identity: identity.clone(),
            bytes: 0,
            sets: 0,
            references: 1,
        };
        let id = match self.free.pop() {
            Some(place) => {
                self.accounts[place as usize] = account;
                SenderId(place)
            }
            None => {
                self.accounts.push(account);
                SenderId(self.accounts.len() as u32 - 1)
            }
        };
        self.index.insert(identity, id);
        id
    }

    /// Gives back what [`Ledger::open`] gave. The account is closed where nothing was charged to it.
    pub fn release(&mut self, id: SenderId) {
        self.accounts[id.0 as usize].references -= 1;
        self.close_if_unused(id);
    }

    /// Removes an account that nothing refers to.
    fn close_if_unused(&mut self, id: SenderId) {
        let account = &self.accounts[id.0 as usize];
        if account.references == 0 && self.index.remove(&account.identity).is_some() {
            self.accounts[id.0 as usize].identity.name = None;
            self.free.push(id.0);
        }
        if self.index.is_empty() {
            // Nothing refers to any place: the memory of a flood of senders goes back.
            self.accounts = Vec::new();
            self.free = Vec::new();
        }
    }

    pub fn name(&self, id: SenderId) -> Option<&str> {
        self.accounts[id.0 as usize].identity.name.as_deref()
    }

    pub fn is_authenticated(&self, id: SenderId) -> bool {
        self.accounts[id.0 as usize].identity.authenticated
    }

    pub fn sets(&self, id: SenderId) -> u64 {
        self.accounts[id.0 as usize].sets
    }

    pub fn bytes(&self, id: SenderId) -> u64 {
        self.accounts[id.0 as usize].bytes
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
        let account = &mut self.accounts[id.0 as usize];
        account.bytes += bytes;
        account.references += 1;
        self.pools[usize::from(account.identity.authenticated)].1 += bytes;
    }

    pub fn refund(&mut self, id: SenderId, bytes: u64) {
        let account = &mut self.accounts[id.0 as usize];
        account.bytes -= bytes;
        account.references -= 1;
        self.pools[usize::from(account.identity.authenticated)].1 -= bytes;
        self.close_if_unused(id);
    }

    pub fn open_set(&mut self, id: SenderId) {
        let account = &mut self.accounts[id.0 as usize];
        account.sets += 1;
        account.references += 1;
        self.pools[usize::from(account.identity.authenticated)].0 += 1;
    }

    pub fn close_set(&mut self, id: SenderId) {
        let account = &mut self.accounts[id.0 as usize];
        account.sets -= 1;
        account.references -= 1;
        self.pools[usize::from(account.identity.authenticated)].0 -= 1;
        self.close_if_unused(id);
    }
}

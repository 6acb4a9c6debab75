//! Values named by handles: no references among them, so no rings, and what is gone is known to be.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

/// Slots are made in pages, so that growth moves nothing and leaves little unused.
const PAGE_SLOTS: usize = 64;

/// Names one value of a [`Slab`] for as long as it is there, and nothing afterwards.
pub struct Handle<T> {
    index: u32,
    generation: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Handle<T> {}

impl<T> PartialOrd for Handle<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Handle<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.index, self.generation).cmp(&(other.index, other.generation))
    }
}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (u64::from(self.generation.get()) << 32 | u64::from(self.index)).hash(state);
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "#{}.{}", self.index, self.generation)
    }
}

impl<T> Handle<T> {
    /// Where the value is, or was: see [`Slab::at`].
    pub fn slot(self) -> u32 {
        self.index
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: NonZeroU32,
    value: Option<T>,
}

/// Values by handle.
#[derive(Debug)]
pub struct Slab<T> {
    pages: Vec<Vec<Slot<T>>>,
    free: Vec<u32>,
    count: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            pages: Vec::new(),
            free: Vec::new(),
            count: 0,
        }
    }
}

impl<T> Slab<T> {
    /// Values that are there.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Holds a value.
    pub fn insert(&mut self, value: T) -> Handle<T> {
        self.count += 1;
        if let Some(index) = self.free.pop() {
            let slot = self.slot_mut(index);
            slot.value = Some(value);
            let generation = slot.generation;
            return Self::handle(index, generation);
        }
        if self
            .pages
            .last()
            .is_none_or(|page| page.len() == PAGE_SLOTS)
        {
            self.pages.push(Vec::with_capacity(PAGE_SLOTS));
        }
        let page = self.pages.len() - 1;
        let index = page * PAGE_SLOTS + self.pages[page].len();
        self.pages[page].push(Slot {
            generation: NonZeroU32::MIN,
            value: Some(value),
        });
        let index = u32::try_from(index).expect("limits keep tables far below 2^32");
        Self::handle(index, NonZeroU32::MIN)
    }

    /// Takes a value out.
    pub fn remove(&mut self, handle: Handle<T>) -> Option<T> {
        let slot = self.slot_mut(handle.index);
        if slot.generation != handle.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.free.push(handle.index);
        self.count -= 1;
        Some(value)
    }

    /// A value; `None` where it is gone.
    pub fn get(&self, handle: Handle<T>) -> Option<&T> {
        let index = handle.index as usize;
        let slot = &self.pages[index / PAGE_SLOTS][index % PAGE_SLOTS];
        slot.value
            .as_ref()
            .filter(|_| slot.generation == handle.generation)
    }

    /// The value that is in a slot, and its handle.
    pub fn at(&self, slot: u32) -> Option<(Handle<T>, &T)> {
        let index = slot as usize;
        let held = self
            .pages
            .get(index / PAGE_SLOTS)?
            .get(index % PAGE_SLOTS)?;
        let value = held.value.as_ref()?;
        Some((Self::handle(slot, held.generation), value))
    }

    /// As [`Slab::at`], to change it.
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slot_mut(slot).value.as_mut()
    }

    /// A value to change; `None` where it is gone.
    pub fn get_mut(&mut self, handle: Handle<T>) -> Option<&mut T> {
        let slot = self.slot_mut(handle.index);
        let current = slot.generation == handle.generation;
        slot.value.as_mut().filter(|_| current)
    }

    fn handle(index: u32, generation: NonZeroU32) -> Handle<T> {
        Handle {
            index,
            generation,
            of: PhantomData,
        }
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        let index = index as usize;
        &mut self.pages[index / PAGE_SLOTS][index % PAGE_SLOTS]
    }
}

/// The value must be there: its owner names it by a handle that it takes back before it goes.
impl<T> std::ops::Index<Handle<T>> for Slab<T> {
    type Output = T;

    fn index(&self, handle: Handle<T>) -> &T {
        self.get(handle).expect("a handle that its owner keeps")
    }
}

impl<T> std::ops::IndexMut<Handle<T>> for Slab<T> {
    fn index_mut(&mut self, handle: Handle<T>) -> &mut T {
        self.get_mut(handle).expect("a handle that its owner keeps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_one_value_and_then_none() {
        let mut slab = Slab::default();
        let handles: Vec<_> = (0..3 * PAGE_SLOTS)
            .map(|value| slab.insert(value))
            .collect();
        assert_eq!(slab.len(), handles.len());
        for (value, &handle) in handles.iter().enumerate() {
            assert_eq!(slab.remove(handle), Some(value));
            assert_eq!(slab.get(handle), None);
            assert_eq!(slab.remove(handle), None);
            let other = slab.insert(value + 1_000);
            assert_eq!((slab.get(handle), slab[other]), (None, value + 1_000));
            assert_eq!(slab.at(handle.slot()), Some((other, &(value + 1_000))));
        }
        assert_eq!(slab.len(), handles.len());
    }
}

//! The field of 256 elements, for the small systems that name bad shards.
//!
//! Both codes live in it: `vandermonde` writes elements in the standard basis, `leopard` in a
//! Cantor basis. Everything here computes in the standard basis; bytes are mapped on the way in.

use crate::erasure::ErasureCode;

/// x^8 + x^4 + x^3 + x^2 + 1, the polynomial of both codes.
const POLYNOMIAL: u16 = 0x11D;

/// The Cantor basis of catid/leopard FF8: bit i of a byte stands for its i-th element.
const CANTOR_BASIS: [u8; 8] = [1, 214, 152, 146, 86, 200, 88, 230];

const ORDER: usize = 255;

const TABLES: ([u8; 256], [u8; 2 * ORDER]) = tables();

const fn tables() -> ([u8; 256], [u8; 2 * ORDER]) {
    let (mut log, mut exp) = ([0; 256], [0; 2 * ORDER]);
    let mut element: u16 = 1;
    let mut power = 0;
    while power < ORDER {
        exp[power] = element as u8;
        exp[power + ORDER] = element as u8;
        log[element as usize] = power as u8;
        element <<= 1;
        if element > 255 {
            element ^= POLYNOMIAL;
        }
        power += 1;
    }
    (log, exp)
}

/// The product of two elements.
pub(super) fn product(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (log, exp) = &TABLES;
    exp[usize::from(log[usize::from(a)]) + usize::from(log[usize::from(b)])]
}

/// The inverse of an element other than zero.
pub(super) fn inverse(a: u8) -> u8 {
    debug_assert_ne!(a, 0, "zero has no inverse");
    let (log, exp) = &TABLES;
    exp[ORDER - usize::from(log[usize::from(a)])]
}

/// The element that a byte of a shard stands for.
pub(super) fn element(code: ErasureCode, byte: u8) -> u8 {
    match code {
        ErasureCode::Vandermonde => byte,
        ErasureCode::Leopard => (0..8)
            .filter(|bit| byte >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ CANTOR_BASIS[bit]),
    }
}

/// A subspace of vectors over the field, as an echelon basis.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    /// Each with the place of its leading one.
    basis: Vec<(usize, Vec<u8>)>,
}

impl Span {
    pub fn dimension(&self) -> usize {
        self.basis.len()
    }

    /// Adds a vector; false where it already lay in the span.
    pub fn add(&mut self, vector: &[u8]) -> bool {
        let mut rest = self.reduce(vector);
        let Some(lead) = rest.iter().position(|value| *value != 0) else {
            return false;
        };
        let scale = inverse(rest[lead]);
        rest.iter_mut()
            .for_each(|value| *value = product(*value, scale));
        self.basis.push((lead, rest));
        true
    }

    pub fn contains(&self, vector: &[u8]) -> bool {
        self.reduce(vector).iter().all(|value| *value == 0)
    }

    fn reduce(&self, vector: &[u8]) -> Vec<u8> {
        let mut rest = vector.to_vec();
        for (lead, basis) in &self.basis {
            let factor = rest[*lead];
            if factor != 0 {
                for (value, term) in rest.iter_mut().zip(basis) {
                    *value ^= product(factor, *term);
                }
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(product(a, inverse(a)), 1);
        }
        assert_eq!(product(2, 128), 0x1D);
    }

    #[test]
    fn a_span_holds_the_combinations_of_its_vectors() {
        let mut span = Span::default();
        assert!(span.add(&[0, 3, 5]));
        assert!(span.add(&[7, 1, 0]));
        assert!(!span.add(&[7, 2, 5]));
        assert_eq!(span.dimension(), 2);
        assert!(span.contains(&[0, 0, 0]));
        assert!(!span.contains(&[0, 0, 1]));
    }
}

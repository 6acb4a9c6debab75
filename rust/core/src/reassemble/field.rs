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

/// Row a holds the products of a.
static PRODUCTS: [[u8; 256]; 256] = products();

/// By the byte of a Leopard shard: the element that it stands for.
static CANTOR_ELEMENTS: [u8; 256] = cantor_elements();

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

const fn products() -> [[u8; 256]; 256] {
    let (log, exp) = &TABLES;
    let mut rows = [[0; 256]; 256];
    let mut a = 1;
    while a < 256 {
        let mut b = 1;
        while b < 256 {
            rows[a][b] = exp[log[a] as usize + log[b] as usize];
            b += 1;
        }
        a += 1;
    }
    rows
}

const fn cantor_elements() -> [u8; 256] {
    let mut elements = [0; 256];
    let mut byte = 1;
    while byte < 256 {
        let lowest = byte & (byte - 1);
        elements[byte] = elements[lowest] ^ CANTOR_BASIS[byte.trailing_zeros() as usize];
        byte += 1;
    }
    elements
}

/// The products of an element, by the other factor.
pub(super) fn products_of(a: u8) -> &'static [u8; 256] {
    &PRODUCTS[usize::from(a)]
}

/// The product of two elements.
pub(super) fn product(a: u8, b: u8) -> u8 {
    products_of(a)[usize::from(b)]
}

/// The product of many elements, none of which is zero.
pub(super) fn product_of_all(elements: impl Iterator<Item = u8>) -> u8 {
    let (log, exp) = &TABLES;
    let sum: usize = elements
        .map(|element| usize::from(log[usize::from(element)]))
        .sum();
    exp[sum % ORDER]
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
        ErasureCode::Leopard => CANTOR_ELEMENTS[usize::from(byte)],
    }
}

/// A subspace of vectors over the field, as an echelon basis.
#[derive(Debug, Clone, Default)]
pub(super) struct Span {
    /// Each with the place of its leading one.
    basis: Vec<(usize, Vec<u8>)>,
    /// Elements multiplied so far.
    products: u64,
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
        let scaled = products_of(inverse(rest[lead]));
        rest.iter_mut()
            .for_each(|value| *value = scaled[usize::from(*value)]);
        self.basis.push((lead, rest));
        true
    }

    /// How many elements were multiplied so far.
    pub fn products(&self) -> u64 {
        self.products
    }

    /// Whether a vector lies in the span.
    pub fn contains(&mut self, vector: &[u8]) -> bool {
        self.reduce(vector).iter().all(|value| *value == 0)
    }

    fn reduce(&mut self, vector: &[u8]) -> Vec<u8> {
        let mut rest = vector.to_vec();
        for (lead, basis) in &self.basis {
            let factor = rest[*lead];
            if factor != 0 {
                self.products += basis.len() as u64;
                let products = products_of(factor);
                for (value, term) in rest.iter_mut().zip(basis) {
                    *value ^= products[usize::from(*term)];
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
        assert_eq!(product_of_all([2, 128, 1].into_iter()), 0x1D);
        assert_eq!(product_of_all(std::iter::empty()), 1);
    }

    #[test]
    fn a_leopard_byte_is_the_sum_of_its_basis() {
        for byte in 0..=255u8 {
            let bits = (0..8).filter(|bit| byte >> bit & 1 == 1);
            let sum = bits.fold(0, |sum, bit| sum ^ CANTOR_BASIS[bit]);
            assert_eq!(element(ErasureCode::Leopard, byte), sum);
        }
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

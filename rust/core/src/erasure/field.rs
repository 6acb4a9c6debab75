//! The two fields of 256 elements, as tables.
//!
//! `VANDERMONDE` is GF(2)[x] / 0x11D with the usual bytes. `LEOPARD` is the same field written in
//! another basis: bit i of a byte stands for the i-th element of a Cantor basis, so its product of
//! two bytes differs while its sum is still XOR. Multiplying by a constant is linear over bits in
//! both, which is all the kernels know of it.

/// x^8 + x^4 + x^3 + x^2 + 1, of klauspost/reedsolomon, reed-solomon-erasure and catid/leopard.
const POLYNOMIAL: u16 = 0x11D;

/// The standard basis: a byte's bits are the coefficients of the polynomial.
const STANDARD_BASIS: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// The Cantor basis of catid/leopard's FF8 (`kCantorBasis`).
const CANTOR_BASIS: [u8; 8] = [1, 214, 152, 146, 86, 200, 88, 230];

/// The multiplicative group has 255 elements; logarithms are taken modulo this.
const ORDER: usize = 255;

/// Bytes as klauspost/reedsolomon and reed-solomon-erasure read them.
pub(crate) static VANDERMONDE: Field = Field::new(STANDARD_BASIS);

/// Bytes as catid/leopard FF8 reads them.
pub(crate) static LEOPARD: Field = Field::new(CANTOR_BASIS);

/// A field of 256 elements: logarithms for the small matrices, linear maps for the kernels.
pub(crate) struct Field {
    /// `log[0]` has no meaning.
    log: [u8; 256],
    /// Powers of the generator 2, twice over, so that a sum of two logarithms needs no reduction.
    exp: [u8; 2 * ORDER],
    /// For a constant c: the products of c with 0..16, then with 0, 16, .. 240.
    nibbles: [Nibbles; 256],
    /// For a constant c: the matrix that GF2P8AFFINEQB takes.
    bits: [u64; 256],
    /// For a layer l: of each point, what the polynomial that vanishes on the points 0 .. 2^l - 1
    /// gives there, divided by what it gives at 2^l.
    skews: [[u8; 256]; 8],
}

/// The products of one constant with every low and every high nibble.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Nibbles {
    pub low: [u8; 16],
    pub high: [u8; 16],
}

impl Field {
    const fn new(basis: [u8; 8]) -> Self {
        let mut from_standard = [0u8; 256];
        let mut to_standard = [0u8; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut bit = 0;
            while bit < 8 {
                if byte >> bit & 1 == 1 {
                    to_standard[byte] ^= basis[bit];
                }
                bit += 1;
            }
            from_standard[to_standard[byte] as usize] = byte as u8;
            byte += 1;
        }

        let mut field = Self {
            log: [0; 256],
            exp: [0; 2 * ORDER],
            nibbles: [Nibbles {
                low: [0; 16],
                high: [0; 16],
            }; 256],
            bits: [0; 256],
            skews: [[0; 256]; 8],
        };
        let mut power = 1u16;
        let mut exponent = 0;
        while exponent < ORDER {
            let element = from_standard[power as usize];
            field.exp[exponent] = element;
            field.exp[exponent + ORDER] = element;
            field.log[element as usize] = exponent as u8;
            power <<= 1;
            if power & 0x100 != 0 {
                power ^= POLYNOMIAL;
            }
            exponent += 1;
        }

        let mut constant = 0;
        while constant < 256 {
            let mut nibble = 0;
            while nibble < 16 {
                field.nibbles[constant].low[nibble] = field.product(constant as u8, nibble as u8);
                field.nibbles[constant].high[nibble] =
                    field.product(constant as u8, (nibble << 4) as u8);
                nibble += 1;
            }
            field.bits[constant] = field.bit_matrix_of(constant as u8);
            constant += 1;
        }
        field.skews = field.skews_of();
        field
    }

    /// The polynomial of layer l + 1 is that of layer l times itself plus its value at 2^l.
    const fn skews_of(&self) -> [[u8; 256]; 8] {
        let mut skews = [[0u8; 256]; 8];
        let mut values = [0u8; 256];
        let mut point = 0;
        while point < 256 {
            values[point] = point as u8;
            point += 1;
        }
        let mut layer = 0;
        while layer < 8 {
            let unit = values[1 << layer];
            let inverse = self.exp[ORDER - self.log[unit as usize] as usize];
            let mut point = 0;
            while point < 256 {
                skews[layer][point] = self.product(values[point], inverse);
                values[point] = self.product(values[point], values[point] ^ unit);
                point += 1;
            }
            layer += 1;
        }
        skews
    }

    /// The rows of the matrix, row of bit 0 in the highest byte, as GF2P8AFFINEQB reads them.
    const fn bit_matrix_of(&self, constant: u8) -> u64 {
        let mut matrix = 0u64;
        let mut column = 0;
        while column < 8 {
            let product = self.product(constant, 1 << column);
            let mut row = 0;
            while row < 8 {
                let bit = (product >> row & 1) as u64;
                matrix |= bit << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        matrix
    }

    /// The product of two elements.
    pub const fn product(&self, a: u8, b: u8) -> u8 {
        if a == 0 || b == 0 {
            return 0;
        }
        self.exp[self.log[a as usize] as usize + self.log[b as usize] as usize]
    }

    /// The logarithm of `element`, which is not zero, in 0..255.
    pub fn log(&self, element: u8) -> usize {
        debug_assert_ne!(element, 0);
        usize::from(self.log[usize::from(element)])
    }

    /// The element with a logarithm, taken modulo 255.
    pub fn exp(&self, logarithm: usize) -> u8 {
        self.exp[logarithm % ORDER]
    }

    /// The skew of a block of butterflies of layer `layer` that starts at `point`, below 256.
    pub fn skew(&self, layer: usize, point: usize) -> u8 {
        self.skews[layer][point]
    }

    /// The products of `constant` with every nibble.
    pub fn nibbles(&self, constant: u8) -> &Nibbles {
        &self.nibbles[usize::from(constant)]
    }

    /// Multiplication by `constant` as a matrix of bits for GF2P8AFFINEQB.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub fn bit_matrix(&self, constant: u8) -> u64 {
        self.bits[usize::from(constant)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product modulo `POLYNOMIAL`, by shifting and adding.
    fn shift_and_add(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b != 0 {
            if b & 1 == 1 {
                product ^= a;
            }
            a = (a << 1) ^ if a & 0x80 != 0 { POLYNOMIAL as u8 } else { 0 };
            b >>= 1;
        }
        product
    }

    /// The element that a byte stands for in the Cantor basis.
    fn standard(byte: u8) -> u8 {
        (0..8)
            .filter(|bit| byte >> bit & 1 == 1)
            .fold(0, |sum, bit| sum ^ CANTOR_BASIS[bit])
    }

    #[test]
    fn products_equal_polynomial_products() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(VANDERMONDE.product(a, b), shift_and_add(a, b));
                let product = LEOPARD.product(a, b);
                assert_eq!(standard(product), shift_and_add(standard(a), standard(b)));
            }
        }
    }

    /// One byte of GF2P8AFFINEQB, from its definition: result bit i is the parity of the byte and
    /// the matrix's byte 7 - i.
    fn affine(matrix: u64, byte: u8) -> u8 {
        (0..8).fold(0, |result, bit| {
            let row = (matrix >> (8 * (7 - bit))) as u8;
            result | ((row & byte).count_ones() as u8 & 1) << bit
        })
    }

    #[test]
    fn linear_maps_equal_products() {
        for field in [&VANDERMONDE, &LEOPARD] {
            for constant in 0..=255 {
                let nibbles = field.nibbles(constant);
                for byte in 0..=255 {
                    let product = field.product(constant, byte);
                    let (low, high) = (usize::from(byte & 15), usize::from(byte >> 4));
                    assert_eq!(nibbles.low[low] ^ nibbles.high[high], product);
                    assert_eq!(affine(field.bit_matrix(constant), byte), product);
                }
            }
        }
    }

    #[test]
    fn skews_vanish_below_their_layer_and_shift_in_the_cantor_basis() {
        for layer in 0..8 {
            for point in 0..256 {
                let shifted = (point >> layer) as u8;
                assert_eq!(LEOPARD.skew(layer, point), shifted);
                let skew = VANDERMONDE.skew(layer, point);
                assert_eq!(skew == 0, shifted == 0);
                let above = VANDERMONDE.skew(layer, point ^ (1 << layer));
                assert_eq!(skew ^ above, 1, "layer {layer} point {point}");
            }
        }
    }

    #[test]
    fn logarithms_and_powers_are_inverse() {
        for field in [&VANDERMONDE, &LEOPARD] {
            for element in 1..=255 {
                assert_eq!(field.exp(field.log(element)), element);
                assert_eq!(field.exp(field.log(element) + 3 * ORDER), element);
            }
        }
    }
}

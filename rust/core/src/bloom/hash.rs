//! The string hashes of the two filters. Neither is used for anything that must resist an attacker.

/// MurmurHash3_x86_32 with seed 0, by Austin Appleby: of `bytes`, and of `bytes` and `salt`
/// together, which share all but the end.
pub(super) fn murmur3_x86_32_and_salted(bytes: &[u8], salt: [u8; 2]) -> [u32; 2] {
    let (blocks, tail) = bytes.as_chunks::<4>();
    let hash = blocks
        .iter()
        .fold(0, |hash, block| murmur_mixed(hash, *block));
    let mut rest = [0; 8];
    rest[..tail.len()].copy_from_slice(tail);
    let plain = murmur_finished(hash, [rest[0], rest[1], rest[2], 0], bytes.len());
    rest[tail.len()..tail.len() + 2].copy_from_slice(&salt);
    let [first, last] = [0, 4].map(|at| [rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let salted_len = bytes.len() + 2;
    let salted = if tail.len() < 2 {
        murmur_finished(hash, first, salted_len)
    } else {
        murmur_finished(murmur_mixed(hash, first), last, salted_len)
    };
    [plain, salted]
}

fn murmur_scrambled(block: [u8; 4]) -> u32 {
    let word = u32::from_le_bytes(block);
    word.wrapping_mul(0xcc9e_2d51)
        .rotate_left(15)
        .wrapping_mul(0x1b87_3593)
}

/// One whole block.
fn murmur_mixed(hash: u32, block: [u8; 4]) -> u32 {
    let hash = (hash ^ murmur_scrambled(block)).rotate_left(13);
    hash.wrapping_mul(5).wrapping_add(0xe654_6b64)
}

/// What is left of less than a block, filled up with zeros, and the length of all.
fn murmur_finished(hash: u32, tail: [u8; 4], length: usize) -> u32 {
    let mut hash = hash ^ murmur_scrambled(tail) ^ length as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

const K0: u64 = 0xc3a5_c85c_97cb_3127;
const K1: u64 = 0xb492_b66f_be98_f273;
const K2: u64 = 0x9ae1_6a3b_2f90_404f;

/// FarmHash's `farmhashna::Hash64`, which Nim's `hash(string)` is.
pub fn farmhash64(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=16 => farm_to_16(bytes),
        17..=32 => farm_to_32(bytes),
        33..=64 => farm_to_64(bytes),
        _ => farm_long(bytes),
    }
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a slice of 8 bytes"))
}

fn word32(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(
        bytes[at..at + 4].try_into().expect("a slice of 4 bytes"),
    ))
}

fn shift_mix(value: u64) -> u64 {
    value ^ value >> 47
}

fn mix_16(u: u64, v: u64, factor: u64) -> u64 {
    let a = shift_mix((u ^ v).wrapping_mul(factor));
    let b = shift_mix((v ^ a).wrapping_mul(factor));
    b.wrapping_mul(factor)
}

fn factor_of(length: usize) -> u64 {
    K2.wrapping_add(2 * length as u64)
}

fn farm_to_16(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let factor = factor_of(length);
    match length {
        0 => K2,
        1..=3 => {
            let [a, b, c] = [bytes[0], bytes[length / 2], bytes[length - 1]].map(u64::from);
            let y = a + (b << 8);
            let z = length as u64 + (c << 2);
            shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K0)).wrapping_mul(K2)
        }
        4..=7 => mix_16(
            length as u64 + (word32(bytes, 0) << 3),
            word32(bytes, length - 4),
            factor,
        ),
        _ => {
            let a = word64(bytes, 0).wrapping_add(K2);
            let b = word64(bytes, length - 8);
            let c = b.rotate_right(37).wrapping_mul(factor).wrapping_add(a);
            let d = a.rotate_right(25).wrapping_add(b).wrapping_mul(factor);
            mix_16(c, d, factor)
        }
    }
}

/// The terms that the two middle lengths share.
fn farm_ends(bytes: &[u8], first: u64) -> (u64, u64, u64) {
    let length = bytes.len();
    let factor = factor_of(length);
    let a = word64(bytes, 0).wrapping_mul(first);
    let b = word64(bytes, 8);
    let c = word64(bytes, length - 8).wrapping_mul(factor);
    let d = word64(bytes, length - 16).wrapping_mul(K2);
    let y = a
        .wrapping_add(b)
        .rotate_right(43)
        .wrapping_add(c.rotate_right(30))
        .wrapping_add(d);
    let z = a
        .wrapping_add(b.wrapping_add(K2).rotate_right(18))
        .wrapping_add(c);
    (a, y, mix_16(y, z, factor))
}

fn farm_to_32(bytes: &[u8]) -> u64 {
    farm_ends(bytes, K1).2
}

fn farm_to_64(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    let factor = factor_of(length);
    let (a, y, z) = farm_ends(bytes, K2);
    let e = word64(bytes, 16).wrapping_mul(factor);
    let f = word64(bytes, 24);
    let g = y
        .wrapping_add(word64(bytes, length - 32))
        .wrapping_mul(factor);
    let h = z
        .wrapping_add(word64(bytes, length - 24))
        .wrapping_mul(factor);
    mix_16(
        e.wrapping_add(f)
            .rotate_right(43)
            .wrapping_add(g.rotate_right(30))
            .wrapping_add(h),
        e.wrapping_add(f.wrapping_add(a).rotate_right(18))
            .wrapping_add(g),
        factor,
    )
}

/// The running state over blocks of 64 bytes.
struct Farm {
    x: u64,
    y: u64,
    z: u64,
    v: (u64, u64),
    w: (u64, u64),
}

impl Farm {
    fn absorb(&mut self, block: &[u8], factor: u64, scale: u64) {
        let Farm { x, y, z, v, w } = self;
        let sum = x
            .wrapping_add(*y)
            .wrapping_add(v.0)
            .wrapping_add(word64(block, 8));
        *x = sum.rotate_right(37).wrapping_mul(factor) ^ w.1.wrapping_mul(scale);
        let sum = y.wrapping_add(v.1).wrapping_add(word64(block, 48));
        *y = sum
            .rotate_right(42)
            .wrapping_mul(factor)
            .wrapping_add(v.0.wrapping_mul(scale))
            .wrapping_add(word64(block, 40));
        *z = z.wrapping_add(w.0).rotate_right(33).wrapping_mul(factor);
        *v = weak_32(block, v.1.wrapping_mul(factor), x.wrapping_add(w.0));
        let seed = y.wrapping_add(word64(block, 16));
        *w = weak_32(&block[32..], z.wrapping_add(w.1), seed);
        std::mem::swap(z, x);
    }
}

fn weak_32(bytes: &[u8], a: u64, b: u64) -> (u64, u64) {
    let [w, x, y, z] = [0, 8, 16, 24].map(|at| word64(bytes, at));
    let a = a.wrapping_add(w);
    let b = b.wrapping_add(a).wrapping_add(z).rotate_right(21);
    let c = a;
    let a = a.wrapping_add(x).wrapping_add(y);
    let b = b.wrapping_add(a.rotate_right(44));
    (a.wrapping_add(z), b.wrapping_add(c))
}

fn farm_long(bytes: &[u8]) -> u64 {
    const SEED: u64 = 81;
    let y = SEED.wrapping_mul(K1).wrapping_add(113);
    let mut state = Farm {
        x: SEED.wrapping_mul(K2).wrapping_add(word64(bytes, 0)),
        y,
        z: shift_mix(y.wrapping_mul(K2).wrapping_add(113)).wrapping_mul(K2),
        v: (0, 0),
        w: (0, 0),
    };
    let whole = (bytes.len() - 1) / 64 * 64;
    for block in bytes[..whole].chunks_exact(64) {
        state.absorb(block, K1, 1);
    }
    let factor = K1.wrapping_add((state.z & 0xff) << 1);
    state.w.0 = state.w.0.wrapping_add((bytes.len() as u64 - 1) & 63);
    state.v.0 = state.v.0.wrapping_add(state.w.0);
    state.w.0 = state.w.0.wrapping_add(state.v.0);
    state.absorb(&bytes[bytes.len() - 64..], factor, 9);
    let Farm { x, y, z, v, w } = state;
    mix_16(
        mix_16(v.0, w.0, factor)
            .wrapping_add(shift_mix(y).wrapping_mul(K0))
            .wrapping_add(z),
        mix_16(v.1, w.1, factor).wrapping_add(x),
        factor,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur_has_its_published_values() {
        let plain = |bytes: &[u8]| murmur3_x86_32_and_salted(bytes, *b" b")[0];
        assert_eq!(plain(b""), 0);
        assert_eq!(plain(b"test"), 0xba6b_d213);
        assert_eq!(plain(b"Hello, world!"), 0xc036_3e43);
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(plain(text), 0x2e4f_f723);
        for length in 0..12 {
            let (bytes, salted) = (&text[..length], [&text[..length], b" b"].concat());
            let hashes = murmur3_x86_32_and_salted(bytes, *b" b");
            assert_eq!(hashes, [plain(bytes), plain(&salted)]);
        }
    }

    #[test]
    fn farmhash_agrees_with_nim_at_every_branch() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/vectors/nim_derived.json"
        );
        let text = std::fs::read_to_string(path).expect("the vectors lie in the repository");
        let vectors: serde_json::Value = serde_json::from_str(&text).expect("they are JSON");
        let cases = vectors["hash"].as_array().expect("a list of hashes");
        let lengths: Vec<usize> = cases
            .iter()
            .map(|case| {
                let input = case["input"].as_str().expect("an input");
                let expected = case["hash_i64"].as_str().expect("a hash");
                assert_eq!(
                    (farmhash64(input.as_bytes()) as i64).to_string(),
                    expected,
                    "{input}"
                );
                input.len()
            })
            .collect();
        assert!(lengths.iter().any(|length| *length > 64));
    }
}

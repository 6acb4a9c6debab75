//! Keccak-f[1600] over any register that holds a lane, or the same lane of several states.

/// A register of 64-bit lanes and the operations of a round on it.
///
/// # Safety
/// Every method needs the instruction set of its implementation, and must be inlined into a
/// function with that target feature.
pub(super) trait Lane: Copy {
    unsafe fn splat(word: u64) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn xor3(self, second: Self, third: Self) -> Self;
    /// `self ^ (!second & third)`.
    unsafe fn chi(self, second: Self, third: Self) -> Self;
    /// Rotation to the left by `LEFT`; `RIGHT` is `64 - LEFT`.
    unsafe fn rotate<const LEFT: i32, const RIGHT: i32>(self) -> Self;
}

/// FIPS 202, 3.2.5: the constants of iota.
const ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808A,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808B,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008A,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000A,
    0x0000_0000_8000_808B,
    0x8000_0000_0000_008B,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800A,
    0x8000_0000_8000_000A,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];

/// The permutation: 24 rounds.
///
/// # Safety
/// As for [`Lane`].
#[inline(always)]
pub(super) unsafe fn permute<L: Lane>(state: &mut [L; 25]) {
    let mut a = *state;
    for constants in ROUND_CONSTANTS.chunks_exact(2) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let e = round(&a, constants[0]);
            a = round(&e, constants[1]);
        }
    }
    *state = a;
}

/// One round, row by row of its result: as few lanes are alive at a time as can be.
#[inline(always)]
unsafe fn round<L: Lane>(a: &[L; 25], constant: u64) -> [L; 25] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let c0 = a[0].xor3(a[5], a[10]).xor3(a[15], a[20]);
        let c1 = a[1].xor3(a[6], a[11]).xor3(a[16], a[21]);
        let c2 = a[2].xor3(a[7], a[12]).xor3(a[17], a[22]);
        let c3 = a[3].xor3(a[8], a[13]).xor3(a[18], a[23]);
        let c4 = a[4].xor3(a[9], a[14]).xor3(a[19], a[24]);
        let d0 = c4.xor(c1.rotate::<1, 63>());
        let d1 = c0.xor(c2.rotate::<1, 63>());
        let d2 = c1.xor(c3.rotate::<1, 63>());
        let d3 = c2.xor(c4.rotate::<1, 63>());
        let d4 = c3.xor(c0.rotate::<1, 63>());

        let [e0, e1, e2, e3, e4] = chi([
            a[0].xor(d0),
            a[6].xor(d1).rotate::<44, 20>(),
            a[12].xor(d2).rotate::<43, 21>(),
            a[18].xor(d3).rotate::<21, 43>(),
            a[24].xor(d4).rotate::<14, 50>(),
        ]);
        let e0 = e0.xor(L::splat(constant));
        let [e5, e6, e7, e8, e9] = chi([
            a[3].xor(d3).rotate::<28, 36>(),
            a[9].xor(d4).rotate::<20, 44>(),
            a[10].xor(d0).rotate::<3, 61>(),
            a[16].xor(d1).rotate::<45, 19>(),
            a[22].xor(d2).rotate::<61, 3>(),
        ]);
        let [e10, e11, e12, e13, e14] = chi([
            a[1].xor(d1).rotate::<1, 63>(),
            a[7].xor(d2).rotate::<6, 58>(),
            a[13].xor(d3).rotate::<25, 39>(),
            a[19].xor(d4).rotate::<8, 56>(),
            a[20].xor(d0).rotate::<18, 46>(),
        ]);
        let [e15, e16, e17, e18, e19] = chi([
            a[4].xor(d4).rotate::<27, 37>(),
            a[5].xor(d0).rotate::<36, 28>(),
            a[11].xor(d1).rotate::<10, 54>(),
            a[17].xor(d2).rotate::<15, 49>(),
            a[23].xor(d3).rotate::<56, 8>(),
        ]);
        let [e20, e21, e22, e23, e24] = chi([
            a[2].xor(d2).rotate::<62, 2>(),
            a[8].xor(d3).rotate::<55, 9>(),
            a[14].xor(d4).rotate::<39, 25>(),
            a[15].xor(d0).rotate::<41, 23>(),
            a[21].xor(d1).rotate::<2, 62>(),
        ]);
        [
            e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14, e15, e16, e17, e18,
            e19, e20, e21, e22, e23, e24,
        ]
    }
}

/// Chi on one row.
#[inline(always)]
unsafe fn chi<L: Lane>([b0, b1, b2, b3, b4]: [L; 5]) -> [L; 5] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        [
            b0.chi(b1, b2),
            b1.chi(b2, b3),
            b2.chi(b3, b4),
            b3.chi(b4, b0),
            b4.chi(b0, b1),
        ]
    }
}

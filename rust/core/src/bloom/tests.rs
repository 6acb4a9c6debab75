use super::*;

#[test]
fn has_the_size_of_the_peers() {
    let filter = BloomFilter::new(10_000, 0.001, WireFormat::Spec).unwrap();
    assert_eq!((filter.hash_count(), filter.bit_count()), (10, 150_000));
    assert_eq!(
        (filter.size_bytes(), filter.to_bytes().len()),
        (18_752, 18_752)
    );
    let filter = BloomFilter::new(10_000, 0.001, WireFormat::Nim).unwrap();
    assert_eq!(
        (filter.size_bytes(), filter.to_bytes().len()),
        (18_768, 18_768)
    );
}

#[test]
fn positions_are_those_of_js_and_nim() {
    let hashes = Hashes::of(b"a", WireFormat::Spec, 958);
    assert_eq!(hashes.positions(4).collect::<Vec<_>>(), [458, 51, 602, 195]);
    let hashes = Hashes::of(b"", WireFormat::Nim, 150_000);
    assert_eq!(hashes.positions(2).collect::<Vec<_>>(), [54_353, 85_446]);
}

#[test]
fn loads_and_reviews_what_it_wrote() {
    for wire_format in [WireFormat::Spec, WireFormat::Nim] {
        let mut filter = BloomFilter::new(100, 0.01, wire_format).unwrap();
        filter.insert(b"held");
        let bytes = filter.to_bytes();
        let mut other = BloomFilter::new(100, 0.01, wire_format).unwrap();
        assert_eq!(other.review(&bytes, ["absent", "held"]), Some(vec![1]));
        assert!(other.load(&bytes));
        assert_eq!(other, filter);
        assert!(!other.load(&bytes[1..]));
        assert_eq!(other.review(&bytes[1..], ["held"]), None);
        assert_eq!(other, filter);
        other.clear();
        assert!(!other.contains("held"));
    }
}

#[test]
fn a_filter_is_overfull_once_it_errs_more_than_one_that_rolls() {
    for wire_format in [WireFormat::Spec, WireFormat::Nim] {
        for (held, is_overfull) in [(0, false), (1_200, false), (1_350, true), (5_000, true)] {
            let mut filter = BloomFilter::new(1_000, 0.001, wire_format).unwrap();
            (0..held).for_each(|number| filter.insert(format!("id {number}").as_bytes()));
            let bytes = filter.to_bytes();
            assert_eq!(filter.is_overfull(&bytes), is_overfull, "{held}");
            assert!(filter.is_overfull(&bytes[1..]));
        }
    }
    // On the wire "nim" a filter brings its own parameters.
    let ours = BloomFilter::new(1_000, 0.001, WireFormat::Nim).unwrap();
    let mut theirs = BloomFilter::new(1, 0.001, WireFormat::Nim).unwrap();
    assert!(!ours.is_overfull(&theirs.to_bytes()));
    theirs.words.fill(u64::MAX);
    assert!(ours.is_overfull(&theirs.to_bytes()));
}

#[test]
fn tells_hits_from_accidents() {
    for wire_format in [WireFormat::Spec, WireFormat::Nim] {
        let mut filter = BloomFilter::new(4, 0.1, wire_format).unwrap();
        let ids: Vec<String> = (0..300).map(|number| format!("id {number}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let (others, asked) = ids.split_at(3);
        others
            .iter()
            .for_each(|other| filter.insert(other.as_bytes()));
        for &one in asked {
            let conclusive = filter.conclusive(&[one], others.iter().copied());
            assert_eq!(conclusive.is_empty(), filter.contains(one));
        }
        let accidents = asked.iter().filter(|one| filter.contains(one)).count();
        assert!(0 < accidents && accidents < asked.len());
        // Among many asked for at once each position has several holders.
        assert!(filter.conclusive(&ids, []).is_empty());
        assert!(filter.conclusive(&["a", "a"], []).is_empty());
    }
}

#[test]
fn refuses_parameters_out_of_range() {
    let new = |capacity, rate| BloomFilter::new(capacity, rate, WireFormat::Spec);
    assert_eq!(new(0, 0.1), Err(BloomError::Capacity(0)));
    assert_eq!(new(1, 1.0), Err(BloomError::ErrorRate(1.0)));
    assert!(matches!(new(1, f64::NAN), Err(BloomError::ErrorRate(_))));
    assert!(matches!(
        new(u64::MAX, 0.1),
        Err(BloomError::TooLarge { .. })
    ));
}

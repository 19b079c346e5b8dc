//! The time in which a wrong key is refused reveals nothing about the valid keys.

use crate::lock::alone_blocking;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use samewire::auth::{Allowance, Caller, Hash, KEY_BYTES, Keyring, PriorityRule, Quota, new_key};
use std::hint::black_box;
use std::time::Instant;

/// Number of samples in a round, of both kinds together.
const SAMPLES: usize = 100_000;
/// Largest allowed difference of the means, in units of its standard error.
const MOST: f64 = 4.5;
/// Number of rounds: a busy machine disturbs one round, a leak shows in all.
const ROUNDS: u64 = 4;

fn key(random: &mut StdRng) -> String {
    new_key(&std::array::from_fn::<u8, KEY_BYTES, _>(|_| {
        random.random()
    }))
}

fn keyring(keys: &[String]) -> Keyring {
    let caller = |place: usize| Caller {
        name: "name".into(),
        tenant: "tenant".into(),
        has_named_tenant: true,
        models: Vec::new(),
        may_capture: false,
        priority: PriorityRule::default(),
        index: place,
        allowance: Allowance::default(),
        quota: Quota::default(),
        not_included: Vec::new(),
    };
    keys.iter()
        .enumerate()
        .map(|(place, key)| (Hash::of(key.as_bytes()), caller(place)))
        .collect()
}

/// Returns a key that is valid except for its last characters, or for one bit.
fn near(keys: &[String], random: &mut StdRng) -> String {
    let mut near = keys[random.random_range(0..keys.len())].clone();
    let at = near.len() - random.random_range(1..=4);
    let letter = near.as_bytes()[at] ^ 1;
    near.replace_range(at..=at, std::str::from_utf8(&[letter]).unwrap());
    near
}

/// Returns Welch's t of two kinds of samples, without the slowest tenth of both, which are interruptions and not
/// the code.
fn welch(samples: &[(bool, f64)]) -> f64 {
    let mut times: Vec<f64> = samples.iter().map(|(_, time)| *time).collect();
    times.sort_by(f64::total_cmp);
    let longest = times[times.len() * 9 / 10];
    let of = |kind: bool| {
        let times: Vec<f64> = samples
            .iter()
            .filter(|(of, time)| *of == kind && *time <= longest)
            .map(|(_, time)| *time)
            .collect();
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    };
    let ((one, of_one), (other, of_other)) = (of(true), of(false));
    (one - other) / (of_one + of_other).sqrt()
}

/// Returns the t of the times that `refuses` takes for almost valid keys and for random ones. All keys are made
/// before the first is checked, and each is checked from the same place in memory.
fn measured(keys: &[String], random: &mut StdRng, refuses: impl Fn(&[u8]) -> bool) -> f64 {
    let shown: Vec<(bool, String)> = (0..SAMPLES)
        .map(|_| {
            let (near, other, is_near) = (near(keys, random), key(random), random.random());
            (is_near, if is_near { near } else { other })
        })
        .collect();
    let mut place = vec![0; shown[0].1.len()];
    let mut samples = Vec::with_capacity(SAMPLES);
    for (is_near, key) in &shown {
        place.copy_from_slice(key.as_bytes());
        let start = Instant::now();
        let refused = refuses(black_box(&place));
        let time = start.elapsed().as_nanos() as f64;
        assert!(refused, "no key of these opens");
        samples.push((*is_near, time));
    }
    welch(&samples)
}

#[test]
fn fault_c30_the_time_of_a_refusal_tells_nothing() {
    let _alone = alone_blocking();
    let mut random = StdRng::seed_from_u64(30);
    let keys: Vec<_> = (0..20).map(|_| key(&mut random)).collect();
    let keyring = keyring(&keys);
    assert!(
        keys.iter()
            .all(|key| keyring.caller(key.as_bytes()).is_some())
    );
    let mut found = Vec::new();
    for round in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(round);
        found.push(measured(&keys, &mut random, |key| {
            black_box(keyring.caller(key)).is_none()
        }));
        if found.last().is_some_and(|t| t.abs() < MOST) {
            break;
        }
    }
    println!("t of {SAMPLES} samples: {found:?}");
    assert!(found.last().is_some_and(|t| t.abs() < MOST), "{found:?}");
}

/// The measurement detects a comparison that ends at the first wrong character.
#[test]
fn fault_c30_a_comparison_that_ends_early_would_be_found() {
    let _alone = alone_blocking();
    let mut random = StdRng::seed_from_u64(31);
    let keys: Vec<_> = (0..20).map(|_| key(&mut random)).collect();
    let early = |shown: &[u8]| {
        let same = |key: &String| {
            key.bytes()
                .zip(shown)
                .all(|(one, other)| black_box(one) == black_box(*other))
        };
        !black_box(keys.iter().any(same))
    };
    let t = measured(&keys, &mut random, early);
    println!("t of a comparison that ends early: {t}");
    assert!(t.abs() > MOST, "{t}");
}

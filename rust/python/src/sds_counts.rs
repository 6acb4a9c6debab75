//! Numbers and moments that both sides of the SDS machine keep: `_native.pyi`, "Scalable Data Sync".
//!
//! Each is the base of the Python class that has the rules, so that there is one state.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[pyclass(subclass, module = "shardwire._native")]
        #[derive(Default)]
        pub struct $name {
            $(#[pyo3(get, set)] pub $field: $type,)+
        }

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (*_arguments, **_named))]
            fn new(_arguments: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
                Self::default()
            }
        }
    )+};
}

counts! {
    /// What waits for its first dispatch.
    QueueCounts { contents: i64, bytes: i64 }
    /// When a periodic sync is due.
    SyncDue { due_ms: Option<i64>, content_since_sync: bool }
    /// When an acknowledgement is due, and how far all is numbered and said.
    AcknowledgementDue { due_ms: Option<i64>, order: u64, said_order: u64 }
    /// A Lamport clock.
    LamportTime { timestamp: u64 }
    /// Transmissions and sends so far.
    TransmitCounts { transmit_count: u64, send_count: u64 }
    /// Contents that wait in the incoming buffer.
    HeldCount { contents_held: i64 }
    /// When the filter left last.
    FilterTime { last_ms: Option<i64> }
}

//! When this participant speaks though it has no content to send: to acknowledge, to keep the
//! channel in step, to say what it holds, to name what others lack.

pub mod acknowledgements;
pub mod anti_entropy;
pub mod feedback;
pub mod filter;
pub mod filter_request;
pub mod lacking;
pub mod schedule;

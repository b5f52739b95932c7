//! The delivering side.

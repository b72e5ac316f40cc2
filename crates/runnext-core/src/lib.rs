//! Part of runnext.

//! Laws of the wire format, as functions that return the violation. Property tests and fuzz targets share them.

pub(crate) mod answer;
pub(crate) mod cut;
pub(crate) mod differential;
pub(crate) mod equivalence;
pub(crate) mod json;
pub(crate) mod lossless;
pub(crate) mod message;
pub(crate) mod request;
pub(crate) mod response;

//! What always holds, as functions that say what is wrong: the property tests and the fuzz targets go by the same.

pub(crate) mod answer;
pub(crate) mod cut;
pub(crate) mod differential;
pub(crate) mod json;
pub(crate) mod lossless;
pub(crate) mod request;
pub(crate) mod response;

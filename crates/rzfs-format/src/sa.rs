//! System attributes: how an object of a version 5 file system keeps its attributes (spec 05,
//! section 2).
//!
//! ```text
//! SA master ZAP --REGISTRY--> name      -> number, length, byte-swap class     (Registry)
//!               --LAYOUTS---> "2","3".. -> attribute numbers in storage order  (Layouts)
//!
//! bonus, and again the spill block:
//! 0        4         6 .. 6 + 2 nvar   hdrsize
//! | magic  | layout  | lengths of      | value | value | ...      each value is 8-byte aligned
//! | 002f505a | hdr/8 | variable values |
//! ```
//!
//! A [`Schema`] (registry and layouts of one file system) turns a buffer into a [`SaBuffer`], which
//! finds values by [`Attribute`], whatever number and place this file system gave them.

mod attribute;
mod buffer;
mod schema;

pub use attribute::{Attribute, AttributeNumber, SwapClass};
pub use buffer::{MAGIC, SaBuffer, SaValue};
pub use schema::{
    FIRST_LAYOUT, HEADER_SIZE, Layout, Layouts, MAX_ATTRIBUTES, MAX_LAYOUTS, RegisteredAttribute,
    Registry, Schema, header_size,
};

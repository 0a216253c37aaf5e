//! Walks over the entries of a ZAP.

use rzfs_format::zap::ZapHash;
use rzfs_format::{BlockId, FormatError};

use crate::cookie::{Cookie, Position};
use crate::entry::ZapEntry;
use crate::fat::{Fat, LeafBlock};
use crate::form::Form;
use crate::micro::Micro;
use crate::{ZapBlocks, ZapError};

/// Iterator over the entries of a ZAP, in the order of cookies.
///
/// An entry that cannot be decoded is an error between the others; after a leaf that cannot be
/// read there is nothing more.
pub struct Entries<'z, B> {
    blocks: &'z B,
    state: State<'z>,
}

type MicroEntries<'z> = Box<dyn Iterator<Item = Result<ZapEntry, FormatError>> + Send + 'z>;

enum State<'z> {
    /// A microzap, of which this position is to be found.
    Start(&'z Micro, Position),
    Micro(MicroEntries<'z>),
    /// The leaf with this position is to be read.
    Seek(&'z Fat, Position),
    /// Entries of a leaf that are yet to be yielded.
    Leaf(&'z Fat, LeafBlock, std::vec::IntoIter<rzfs_format::zap::leaf::LeafEntry>),
    Done,
}

impl<'z, B: ZapBlocks> Entries<'z, B> {
    pub(crate) fn new(form: &'z Form, blocks: &'z B, cookie: Cookie) -> Self {
        let state = match (form, Position::from_cookie(cookie, form.hash_bits())) {
            (_, None) => State::Done,
            (Form::Micro(micro), Some(position)) => State::Start(micro, position),
            (Form::Fat(fat), Some(position)) => State::Seek(fat, position),
        };
        Self { blocks, state }
    }

    fn read_leaf(&self, fat: &'z Fat, position: Position) -> Result<State<'z>, ZapError<B::Error>> {
        let leaf = fat.leaf(self.blocks, position.hash)?;
        let found = fat.sorted(&leaf, position).map_err(ZapError::corrupt(leaf.id))?;
        Ok(State::Leaf(fat, leaf, found.into_iter()))
    }

    /// What comes after a leaf: the one with the next hashes, if there are any.
    fn after_leaf(fat: &'z Fat, leaf: &LeafBlock) -> Result<State<'z>, FormatError> {
        let last = leaf.view()?.last_hash();
        Ok(match last.0.checked_add(1) {
            Some(next) => State::Seek(fat, Position { hash: ZapHash(next), cd: 0 }),
            None => State::Done,
        })
    }

    /// One step: an entry, an error, or nothing yet.
    fn step(&mut self) -> Option<Result<ZapEntry, ZapError<B::Error>>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => None,
            State::Start(micro, position) => match micro.from(self.blocks, position) {
                Ok(entries) => {
                    self.state = State::Micro(Box::new(entries));
                    None
                }
                Err(error) => Some(Err(error)),
            },
            State::Micro(mut entries) => {
                let entry = entries.next()?;
                self.state = State::Micro(entries);
                Some(entry.map_err(ZapError::corrupt(BlockId(0))))
            }
            State::Seek(fat, position) => match self.read_leaf(fat, position) {
                Ok(state) => {
                    self.state = state;
                    None
                }
                Err(error) => Some(Err(error)),
            },
            State::Leaf(fat, leaf, mut entries) => {
                let Some(entry) = entries.next() else {
                    return match Self::after_leaf(fat, &leaf) {
                        Ok(state) => {
                            self.state = state;
                            None
                        }
                        Err(error) => Some(Err(ZapError::corrupt(leaf.id)(error))),
                    };
                };
                let decoded = leaf.view().and_then(|view| fat.entry(&view, &entry));
                let decoded = decoded.map_err(ZapError::corrupt(leaf.id));
                self.state = State::Leaf(fat, leaf, entries);
                Some(decoded)
            }
        }
    }
}

impl<B: ZapBlocks> Iterator for Entries<'_, B> {
    type Item = Result<ZapEntry, ZapError<B::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.step() {
                return Some(item);
            }
            if matches!(self.state, State::Done) {
                return None;
            }
        }
    }
}

//! `zfs send -t`: the rest of an interrupted stream (spec 08, section 8.3).

use super::stream::{check_output, send};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Word, devices, operands};
use crate::source;
use crate::zfs::name;
use rzfs_format::nvlist::{NvList, NvValue};
use rzfs_server::protocol::{Portion, SendRequest, SentProperties, Steps};
use rzfs_stream::ResumeToken;
use std::fmt::{Display, Formatter, Result as FormatResult};

/// The status of all failures, as in OpenZFS.
const FAILED: u8 = 255;

/// Runs it.
pub(super) fn run(words: &[Word], token: &str, console: &mut Console<'_>) -> Outcome {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let has_source = words.iter().any(|word| matches!(word, Word::Option('i' | 'I', _)));
    if has_source || flag('S') {
        return Err(Failure::Usage("invalid flags combined with -t".to_owned()));
    }
    if !operands(words).is_empty() {
        return Err(Failure::Usage("too many arguments".to_owned()));
    }
    check_output(words)?;
    let failed = |why: &dyn Display| Failure::Failed(format!("cannot resume send: {why}"));
    let refused = |why: &dyn Display| failed(why).with_status(FAILED);
    let list = ResumeToken::unpack(token).map_err(|error| refused(&error))?;
    let sent = ResumeToken::decode(token).map_err(|error| refused(&error))?;
    if flag('v') || flag('P') {
        let told = if flag('n') { &mut *console.out } else { &mut *console.err };
        write!(told, "resume token contents:\n{}", Contents(&list))?;
    }
    let snapshot = sent.to_name.to_text().into_owned();
    let missing =
        || refused(&format_args!("'{snapshot}' used in the initial send no longer exists"));
    if name::check(&snapshot).is_err() {
        return Err(missing());
    }
    let pool = name::pool_of(&snapshot).to_owned();
    let found = source::respondents(&devices(words), std::slice::from_ref(&pool), console)?;
    let Some(client) = found.pools.into_iter().next() else {
        return found.outcome.and(Err(missing()));
    };
    let request = SendRequest {
        snapshot,
        from: None,
        steps: Steps::One,
        large_blocks: flag('L'),
        embedded: flag('e'),
        compressed: flag('c'),
        raw: false,
        portion: Portion::Rest { token: token.to_owned() },
        properties: SentProperties::None,
        holds: false,
        tree: None,
    };
    send(client, words, &request, console).map_err(|failure| failure.with_status(FAILED))
}

/// The contents of a token in OpenZFS's list format.
struct Contents<'a>(&'a NvList);

impl Display for Contents<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FormatResult {
        writeln!(f, "nvlist version: 0")?;
        for pair in self.0.iter() {
            let name = pair.name().to_text();
            write!(f, "\t{name} =")?;
            match pair.value() {
                NvValue::UInt64(number) => write!(f, " {number:#x}")?,
                NvValue::UInt64Array(numbers) => {
                    numbers.iter().try_for_each(|number| write!(f, " {number:#x}"))?;
                }
                NvValue::String(text) => write!(f, " {}", text.to_text())?,
                // Its presence is its value.
                _ => write!(f, " 1")?,
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_as_openzfs_shows_it() {
        let mut list = NvList::new();
        list.insert("object", NvValue::UInt64(0x8f)).unwrap();
        list.insert("offset", NvValue::UInt64(0)).unwrap();
        list.insert("toname", NvValue::String("g30/a@1".try_into().unwrap())).unwrap();
        list.insert("largeblockok", NvValue::Boolean).unwrap();
        list.insert("redact_snaps", NvValue::UInt64Array([1, 31].into())).unwrap();
        assert_eq!(
            Contents(&list).to_string(),
            "nvlist version: 0\n\tobject = 0x8f\n\toffset = 0x0\n\ttoname = g30/a@1\n\
             \tlargeblockok = 1\n\tredact_snaps = 0x1 0x1f\n"
        );
    }
}

//! `zstream token`: shows a resume token.

use crate::console::{Console, Failure, Outcome};
use rzfs_stream::ResumeToken;

/// Indentation in columns.
const INDENTATION: usize = 5;

/// Runs `zstream token`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let Some(text) = words.first() else {
        return Err(Failure::Usage("Need to pass the resume token".to_owned()));
    };
    match ResumeToken::unpack(text) {
        Ok(list) => {
            write!(console.out, "{}", list.indented(INDENTATION))?;
            Ok(())
        }
        Err(error) => Err(Failure::Failed(format!("Unable to parse resume token: {error}"))),
    }
}

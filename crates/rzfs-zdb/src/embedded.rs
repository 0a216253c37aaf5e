//! `zdb -E`: the data in an embedded block pointer.

use super::error::ZdbError;
use super::session::Session;
use rzfs_codec::compress::decompress;
use rzfs_format::BlockPointer;
use rzfs_format::block_pointer::PointerKind;

/// Writes the data of the pointer given by sixteen words on the command line.
pub(crate) fn run(session: &mut Session<'_>) -> Result<(), ZdbError> {
    let [text] = session.arguments.targets.as_slice() else {
        return Err(ZdbError::Usage(
            "-E needs sixteen words in hex, word0:word1:...:word15".into(),
        ));
    };
    let data = data(text).map_err(|problem| ZdbError::Usage(problem.into()))?;
    session.out.write_all(&data)?;
    Ok(())
}

fn data(text: &str) -> Result<Vec<u8>, &'static str> {
    let words: Option<Vec<u64>> =
        text.split(':').map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let words: [u64; 16] =
        words.and_then(|words| words.try_into().ok()).ok_or("invalid input format")?;
    let pointer = BlockPointer::from_words(words);
    if pointer.kind() != PointerKind::Embedded || pointer.validate().is_err() {
        return Err("not an embedded block pointer");
    }
    let (payload, length) = pointer.embedded_payload();
    let compression = pointer.compression().map_err(|_| "unknown compression")?;
    let mut data = vec![0; usize::try_from(pointer.logical_size()).unwrap_or(0)];
    decompress(compression, payload.get(..length).unwrap_or_default(), &mut data)
        .map_err(|_| "the data do not decompress")?;
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of a real pool; OpenZFS's zdb gives the same 512 bytes.
    const POINTER: &str = "100032118000000:a01d84c15805100:50d8ff00020f00:0:0:0:\
                           8014008f360001ff:0:0:0:b:0:0:0:0:0";

    #[test]
    fn pointer_of_a_real_pool() {
        let data = data(POINTER).unwrap();
        assert_eq!(data.len(), 512);
        assert_eq!(data[..12], [3, 0, 0, 0, 0, 0, 0, 0x80, 0x15, 0x4c, 0xd8, 1]);
    }

    #[test]
    fn what_is_no_embedded_pointer_is_refused() {
        assert_eq!(data("1:2:3"), Err("invalid input format"));
        assert_eq!(data(&POINTER.replace(":0:0:0:0:0", ":0:0:0:0:x")), Err("invalid input format"));
        assert_eq!(data(&["0"; 16].join(":")), Err("not an embedded block pointer"));
        assert_eq!(data(&POINTER.replace("118", "fff")), Err("the data do not decompress"));
    }
}

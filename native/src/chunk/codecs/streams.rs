//! One compressed stream, by the name of its format. Knows the codec crates; knows nothing of
//! blocks or chunks. Output is always bounded by the slice that is passed.

use crate::chunk::codecs::blosclz;
use crate::chunk::codecs::lz4::{self, lookup};
use crate::chunk::header::{MAX_DICTIONARY, StreamFormat};
use crate::error::{Error, Kind, Outcome, corrupt, unsupported};
use crate::memory::{grow, out_of_memory};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lzzzz::lz4::Compressor as Lz4Encoder;
use std::sync::Mutex;
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, InBuffer, OutBuffer, ResetDirective};

/// The state of codecs that a thread keeps between calls. Built when first needed.
#[derive(Default)]
pub struct Codecs {
    zstd_decoder: Option<DCtx<'static>>,
    zstd_encoder: Option<CCtx<'static>>,
    /// Only for streams with a dictionary.
    lz4_encoder: Option<Box<Lz4Encoder<'static>>>,
    inflate: Option<Decompress>,
    deflate: Option<(u8, libdeflater::Compressor)>,
    /// A copy of what is deflated.
    steady: Vec<u8>,
    blosclz: blosclz::Table,
    lz4_marks: Vec<lookup::Mark>,
    lz4_places: Option<lz4::encode::Places>,
}

/// A dictionary made ready for one codec at one level.
pub enum Primer<'a> {
    /// An encoder that has read the dictionary and encodes nothing; encoders attach it. Only attaching
    /// needs the lock.
    Lz4(Mutex<Box<Lz4Encoder<'static>>>),
    Lz4Hc(&'a [u8]),
    Zstd(CDict<'static>),
}

impl<'a> Primer<'a> {
    pub fn new(content: &'a [u8], codec: Codec, level: u8) -> Outcome<Self> {
        let wrong = |text: String| Err(Error::new(Kind::Argument, text));
        if !(1..=MAX_DICTIONARY).contains(&content.len()) {
            return wrong(format!("the dictionary has {} bytes, 1 to {MAX_DICTIONARY} are possible", content.len()));
        }
        match codec {
            Codec::Lz4 => match Lz4Encoder::with_dict(content.to_vec()) {
                Ok(reader) => Ok(Self::Lz4(Mutex::new(Box::new(reader)))),
                Err(_) => Err(out_of_memory(content.len())),
            },
            Codec::Lz4Hc => Ok(Self::Lz4Hc(content)),
            Codec::Zstd => match CDict::try_create(content, primed_zstd_level(level)) {
                Some(digest) => Ok(Self::Zstd(digest)),
                None => wrong(format!("the dictionary of {} bytes is none of Zstandard's", content.len())),
            },
            other => wrong(format!("{other:?} uses no dictionary; lz4, lz4hc and zstd do")),
        }
    }
}

/// Make a dictionary of at most `room` bytes from samples that lie one behind the other;
/// empty when training fails.
pub fn train(samples: &[u8], sizes: &[usize], room: usize) -> Vec<u8> {
    let mut dictionary = vec![0; room];
    let made = zstd_safe::train_from_buffer(&mut dictionary[..], samples, sizes).unwrap_or(0);
    dictionary.truncate(made);
    dictionary
}

/// The codecs a chunk can be written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    BloscLz,
    Lz4,
    Lz4Hc,
    Snappy,
    Zlib,
    Zstd,
}

impl Codec {
    pub const NAMES: [(&'static str, Self); 6] = [
        ("blosclz", Self::BloscLz),
        ("lz4", Self::Lz4),
        ("lz4hc", Self::Lz4Hc),
        ("snappy", Self::Snappy),
        ("zlib", Self::Zlib),
        ("zstd", Self::Zstd),
    ];

    pub fn parse(name: &str) -> Outcome<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, codec)| *codec).ok_or_else(|| {
            let known: Vec<_> = Self::NAMES.iter().map(|(known, _)| *known).collect();
            Error::new(Kind::Argument, format!("codec {name:?} is unknown; known: {}", known.join(", ")))
        })
    }

    /// The number that Blosc 2 has for the codec itself.
    pub fn number(self) -> u8 {
        match self {
            Self::BloscLz => 0,
            Self::Lz4 => 1,
            Self::Lz4Hc => 2,
            Self::Snappy => 3,
            Self::Zlib => 4,
            Self::Zstd => 5,
        }
    }

    pub fn format(self) -> StreamFormat {
        match self {
            Self::BloscLz => StreamFormat::BloscLz,
            Self::Lz4 | Self::Lz4Hc => StreamFormat::Lz4,
            Self::Snappy => StreamFormat::Snappy,
            Self::Zlib => StreamFormat::Zlib,
            Self::Zstd => StreamFormat::Zstd,
        }
    }
}

/// A codec that makes one stream of a whole chunk, with the parameters of its encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// With the decoded size in front, as a little-endian u32.
    Lz4 {
        acceleration: i32,
    },
    Zlib {
        level: i32,
    },
    Zstd {
        level: i32,
        checksum: bool,
    },
}

/// Bytes that all streams of a chunk refer to as if they lay in front of each.
pub struct Dictionary<'a> {
    content: &'a [u8],
    /// Digested for Zstandard.
    digest: Option<DDict<'static>>,
}

impl<'a> Dictionary<'a> {
    /// Parse the bytes behind the block starts: the size, then the dictionary.
    pub fn parse(bytes: &'a [u8], format: StreamFormat) -> Outcome<Self> {
        let Some((size, rest)) = bytes.split_first_chunk::<4>() else {
            return corrupt!("Blosc chunk: its dictionary lies behind the chunk's end");
        };
        let size = i32::from_le_bytes(*size);
        let content = usize::try_from(size).ok().filter(|size| (1..=MAX_DICTIONARY).contains(size));
        let Some(content) = content.and_then(|size| rest.get(..size)) else {
            return corrupt!(
                "Blosc chunk: its dictionary claims {size} bytes, 1 to {} are possible",
                rest.len().min(MAX_DICTIONARY)
            );
        };
        let mut digest = None;
        if format == StreamFormat::Zstd {
            digest = DDict::try_create(content);
            if digest.is_none() {
                return corrupt!("Blosc chunk: its dictionary of {size} bytes is none of Zstandard's");
            }
        }
        Ok(Self { content, digest })
    }

    /// With the size in front.
    pub fn stored_bytes(&self) -> usize {
        4 + self.content.len()
    }
}

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The bit of a frame's descriptor, the byte behind the magic, that announces a checksum.
const ZSTD_CHECKSUM: u8 = 0x04;
/// The bits that announce the number of a dictionary.
const ZSTD_DICTIONARY: u8 = 0x03;
const ZSTD_07_MAGIC: [u8; 4] = [0x27, 0xb5, 0x2f, 0xfd];
/// The most bytes that one block of Zstandard holds.
const ZSTD_FULL_BLOCK: u32 = 128 << 10;
/// Up to this level blocks end where they are full. Zstandard 1.5.7 searches full blocks, and only
/// those, for better places to end; at fast levels that takes a fifth of the time.
const ZSTD_UNSPLIT: i32 = 4;
/// Zstandard decodes in steps of this size: a shorter prefix costs as much.
const ZSTD_STEP: usize = 128 << 10;

impl Codecs {
    /// The byte that a stream of `size` bytes repeats, when its form shows that it is a run.
    pub fn run(format: StreamFormat, stream: &[u8], size: usize) -> Option<u8> {
        match format {
            StreamFormat::Lz4 => lz4::run(stream, size),
            StreamFormat::BloscLz => blosclz::run(stream, size),
            _ => None,
        }
    }

    /// Memory that would be kept for the next call.
    pub fn kept_bytes(&self) -> usize {
        self.lz4_marks.capacity() * size_of::<lookup::Mark>() + self.steady.capacity()
    }

    /// Write the bytes of an LZ4 stream at `positions`, which ascend, to `out`; return false when
    /// that would take longer than decoding the stream.
    pub fn find(&mut self, stream: &[u8], positions: &[usize], out: &mut [u8]) -> Outcome<bool> {
        match lookup::find(stream, positions, &mut self.lz4_marks, out) {
            lookup::Found::All => Ok(true),
            lookup::Found::TooDeep => Ok(false),
            lookup::Found::Impossible => {
                corrupt!(
                    "a Lz4 stream of {} bytes has no {} bytes",
                    stream.len(),
                    positions.last().map_or(0, |last| last + 1)
                )
            }
        }
    }

    /// Decode all of `stream`, which may refer to `dictionary`, into `out`, which it must
    /// fill exactly. Formats without dictionaries ignore it.
    pub fn decode_with(
        &mut self,
        dictionary: &Dictionary<'_>,
        format: StreamFormat,
        stream: &[u8],
        out: &mut [u8],
    ) -> Outcome<()> {
        let made = match (format, &dictionary.digest) {
            (StreamFormat::Lz4, _) => lzzzz::lz4::decompress_with_dict(stream, out, dictionary.content).ok(),
            (StreamFormat::Zstd, Some(digest)) => {
                check_zstd_frame(stream)?;
                let decoder = self.zstd_decoder.get_or_insert_with(DCtx::create);
                decoder.decompress_using_ddict(out, stream, digest).ok()
            }
            _ => return self.decode(format, stream, out),
        };
        check_made(format, stream, made, out.len())
    }

    /// Decode all of `stream` into `out`, which it must fill exactly.
    pub fn decode(&mut self, format: StreamFormat, stream: &[u8], out: &mut [u8]) -> Outcome<()> {
        let wanted = out.len();
        let made = match format {
            StreamFormat::BloscLz => blosclz::decode(stream, out, true).map(|()| wanted),
            StreamFormat::Lz4 => lz4::decode(stream, out).map(|()| wanted),
            StreamFormat::Snappy => decode_snappy(stream, out),
            StreamFormat::Zlib => self.decode_zlib(stream, out, true),
            StreamFormat::Zstd => self.decode_zstd(stream, out)?,
        };
        check_made(format, stream, made, wanted)
    }

    /// Decode at least the first `wanted` bytes of a stream that holds `out.len()` bytes;
    /// the bytes of `out` behind them are unspecified. A stream with a checksum of its own is decoded
    /// to its end, where the checksum is, unless the stream is `trusted`.
    pub fn decode_prefix(
        &mut self,
        format: StreamFormat,
        stream: &[u8],
        out: &mut [u8],
        wanted: usize,
        trusted: bool,
    ) -> Outcome<()> {
        if wanted + wanted / 8 >= out.len() || (!trusted && has_checksum(format, stream)) {
            return self.decode(format, stream, out);
        }
        let made = match format {
            StreamFormat::BloscLz => blosclz::decode(stream, &mut out[..wanted], false).map(|()| wanted),
            StreamFormat::Lz4 => lz4::decode_prefix(stream, &mut out[..wanted]).map(|()| wanted),
            StreamFormat::Zlib => self.decode_zlib(stream, &mut out[..wanted], false),
            StreamFormat::Zstd if wanted + ZSTD_STEP < out.len() => {
                check_zstd_magic(stream)?;
                self.decode_zstd_prefix(stream, &mut out[..wanted])
            }
            _ => return self.decode(format, stream, out),
        };
        match made {
            Some(made) if made == wanted => Ok(()),
            _ => corrupt!("a {format:?} stream of {} bytes has no {wanted} bytes", stream.len()),
        }
    }

    /// Decode until `out` is full; with `whole`, the stream must then be at its end.
    fn decode_zlib(&mut self, stream: &[u8], out: &mut [u8], whole: bool) -> Option<usize> {
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(true));
        inflate.reset(true);
        let status = inflate.decompress(stream, out, FlushDecompress::Finish);
        let ended = matches!(status, Ok(Status::StreamEnd)) && inflate.total_in() == stream.len() as u64;
        (ended || (!whole && status.is_ok())).then_some(inflate.total_out() as usize)
    }

    fn decode_zstd(&mut self, stream: &[u8], out: &mut [u8]) -> Outcome<Option<usize>> {
        check_zstd_frame(stream)?;
        let decoder = self.zstd_decoder.get_or_insert_with(DCtx::create);
        Ok(decoder.decompress(out, stream).ok())
    }

    fn decode_zstd_prefix(&mut self, stream: &[u8], out: &mut [u8]) -> Option<usize> {
        let decoder = self.zstd_decoder.get_or_insert_with(DCtx::create);
        decoder.reset(ResetDirective::SessionOnly).ok()?;
        let wanted = out.len();
        let mut output = OutBuffer::around(out);
        let mut input = InBuffer::around(stream);
        while output.pos() < wanted {
            let before = (output.pos(), input.pos());
            let finished = decoder.decompress_stream(&mut output, &mut input).ok()? == 0;
            if finished || before == (output.pos(), input.pos()) {
                break;
            }
        }
        Some(output.pos())
    }

    /// Decode a stream that holds a whole chunk; it must fill `out` exactly.
    pub fn decode_whole(&mut self, whole: Whole, stream: &[u8], out: &mut [u8]) -> Outcome<()> {
        match whole {
            Whole::Lz4 { .. } => match stream.split_first_chunk::<4>() {
                Some((size, stream)) if u32::from_le_bytes(*size) as usize == out.len() => {
                    self.decode(StreamFormat::Lz4, stream, out)
                }
                Some((size, _)) => {
                    corrupt!("lz4: the stream claims {} bytes, {} are due", u32::from_le_bytes(*size), out.len())
                }
                None => corrupt!("lz4: {} bytes are stored, the size alone takes 4", stream.len()),
            },
            Whole::Zlib { .. } => self.decode(StreamFormat::Zlib, stream, out),
            Whole::Zstd { .. } => {
                if stream.first_chunk() != Some(&ZSTD_MAGIC) {
                    return corrupt!("zstd: no frame begins at byte 0");
                }
                if stream.get(ZSTD_MAGIC.len()).is_some_and(|descriptor| descriptor & ZSTD_DICTIONARY != 0) {
                    return unsupported!("zstd: a frame that needs a dictionary");
                }
                let decoder = self.zstd_decoder.get_or_insert_with(DCtx::create);
                match decoder.decompress(out, stream) {
                    Ok(made) if made == out.len() => Ok(()),
                    Ok(made) => corrupt!("zstd: the stream holds {made} bytes, {} are due", out.len()),
                    Err(_) => corrupt!("zstd: {} bytes do not decode to {} bytes", stream.len(), out.len()),
                }
            }
        }
    }

    /// How many bytes suffice for `encode_whole`, for any input.
    pub fn most_encoded(size: usize) -> usize {
        size + size / 8 + 512
    }

    /// Encode a whole chunk as one stream into `out`; return its length.
    pub fn encode_whole(&mut self, whole: Whole, source: &[u8], out: &mut [u8]) -> Outcome<usize> {
        let failed = || Error::new(Kind::Argument, format!("{whole:?} does not encode {} bytes", source.len()));
        match whole {
            Whole::Lz4 { acceleration } => {
                let size = u32::try_from(source.len()).map_err(|_| failed())?;
                out[..4].copy_from_slice(&size.to_le_bytes());
                Ok(4 + lzzzz::lz4::compress(source, &mut out[4..], acceleration).map_err(|_| failed())?)
            }
            Whole::Zlib { level } => {
                let level = if level < 0 { Compression::default() } else { Compression::new(level as u32) };
                let mut deflate = Compress::new(level, true);
                match deflate.compress(source, out, FlushCompress::Finish) {
                    Ok(Status::StreamEnd) => Ok(deflate.total_out() as usize),
                    _ => Err(failed()),
                }
            }
            Whole::Zstd { level, checksum } => {
                let encoder = self.zstd_encoder.get_or_insert_with(CCtx::create);
                let block = if level <= ZSTD_UNSPLIT { ZSTD_FULL_BLOCK - 1024 } else { ZSTD_FULL_BLOCK };
                let used = encoder
                    .set_parameter(CParameter::CompressionLevel(level))
                    .and_then(|_| encoder.set_parameter(CParameter::ChecksumFlag(checksum)))
                    .and_then(|_| encoder.set_parameter(CParameter::MaxBlockSize(block)))
                    .and_then(|_| encoder.compress2(out, source));
                let used = used.map_err(|_| failed());
                encoder.reset(ResetDirective::SessionAndParameters).map_err(|_| failed())?;
                used
            }
        }
    }

    /// Encode `source` into `out`; return the length, or `None` when it does not fit.
    pub fn encode(&mut self, codec: Codec, level: u8, source: &[u8], out: &mut [u8]) -> Option<usize> {
        match codec {
            Codec::BloscLz => blosclz::encode(source, out, level, &mut self.blosclz),
            Codec::Lz4 => self.encode_lz4(level, source, out),
            Codec::Lz4Hc => lzzzz::lz4_hc::compress(source, out, i32::from(level)).ok(),
            Codec::Snappy => encode_snappy(source, out),
            Codec::Zlib => self.encode_zlib(level, source, out),
            Codec::Zstd => self.encode_zstd(zstd_level(level), source, out),
        }
    }

    fn encode_lz4(&mut self, level: u8, source: &[u8], out: &mut [u8]) -> Option<usize> {
        // The acceleration that C-Blosc gives each level.
        let acceleration = 10 - level;
        lz4::encode_run(source, out).or_else(|| {
            if source.len() < lz4::encode::LEAST {
                return lzzzz::lz4::compress(source, out, i32::from(acceleration)).ok();
            }
            lz4::encode::encode(source, out, usize::from(acceleration), self.lz4_places.get_or_insert_default())
        })
    }

    fn encode_zstd(&mut self, level: i32, source: &[u8], out: &mut [u8]) -> Option<usize> {
        let encoder = self.zstd_encoder.get_or_insert_with(CCtx::create);
        encoder.compress(out, source, level).ok()
    }

    /// The same as `encode`, with the dictionary of the primer.
    pub fn encode_with(&mut self, primer: &Primer<'_>, level: u8, source: &[u8], out: &mut [u8]) -> Option<usize> {
        match primer {
            Primer::Lz4(reader) => self.encode_primed_lz4(reader, level, source, out),
            Primer::Lz4Hc(content) => {
                let mut encoder = lzzzz::lz4_hc::Compressor::with_dict(*content, i32::from(level)).ok()?;
                encoder.next(source, out).ok()
            }
            Primer::Zstd(digest) => {
                let encoder = self.zstd_encoder.get_or_insert_with(CCtx::create);
                encoder.compress_using_cdict(out, source, digest).ok()
            }
        }
    }

    fn encode_primed_lz4(
        &mut self,
        reader: &Mutex<Box<Lz4Encoder<'static>>>,
        level: u8,
        source: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let mut encoder = match self.lz4_encoder.take() {
            Some(encoder) => encoder,
            None => Box::new(Lz4Encoder::new().ok()?),
        };
        // The first call forgets the stream before; the second one holds for one stream.
        encoder.attach_dict(None);
        encoder.attach_dict(Some(&mut *reader.lock().expect("no thread panics")));
        let used = encoder.next(source, out, 10 - i32::from(level)).ok()?;
        // Only after success: the state of an encoder that failed is not specified.
        self.lz4_encoder = Some(encoder);
        Some(used)
    }

    fn encode_zlib(&mut self, level: u8, source: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.deflate.as_ref().is_none_or(|(built, _)| *built != level) {
            let grade = libdeflater::CompressionLvl::new(zlib_grade(level)).ok()?;
            self.deflate = Some((level, libdeflater::Compressor::new(grade)));
        }
        let (_, deflate) = self.deflate.as_mut()?;
        // Read more than once: where another thread writes to the caller's memory meanwhile, the stream
        // would not decode, and might be longer than `out`.
        let steady = grow(&mut self.steady, source.len()).ok()?;
        steady.copy_from_slice(source);
        deflate.zlib_compress(steady, out).ok()
    }
}

fn check_made(format: StreamFormat, stream: &[u8], made: Option<usize>, wanted: usize) -> Outcome<()> {
    match made {
        Some(made) if made == wanted => Ok(()),
        Some(made) => corrupt!("a {format:?} stream of {} bytes holds {made} bytes, not {wanted}", stream.len()),
        None => corrupt!("a {format:?} stream of {} bytes does not decode to {wanted} bytes", stream.len()),
    }
}

/// Check that there is one frame and nothing behind it, as every writer of Blosc makes it.
fn check_zstd_frame(stream: &[u8]) -> Outcome<()> {
    check_zstd_magic(stream)?;
    if zstd_safe::find_frame_compressed_size(stream) != Ok(stream.len()) {
        return corrupt!("a Zstd stream of {} bytes is not exactly one frame", stream.len());
    }
    Ok(())
}

/// Whether a stream ends in a checksum of what it holds: an Adler-32, or that of a Zstandard frame.
fn has_checksum(format: StreamFormat, stream: &[u8]) -> bool {
    match format {
        StreamFormat::Zlib => true,
        StreamFormat::Zstd => stream.get(ZSTD_MAGIC.len()).is_some_and(|descriptor| descriptor & ZSTD_CHECKSUM != 0),
        StreamFormat::BloscLz | StreamFormat::Lz4 | StreamFormat::Snappy => false,
    }
}

fn check_zstd_magic(stream: &[u8]) -> Outcome<()> {
    match stream.first_chunk::<4>() {
        Some(&ZSTD_MAGIC) => Ok(()),
        Some(&ZSTD_07_MAGIC) => {
            unsupported!("a Zstd stream in the format of Zstandard 0.7, from before it was settled")
        }
        _ => corrupt!("a Zstd stream of {} bytes does not begin with a frame", stream.len()),
    }
}

/// libdeflate compresses as well at one level less as zlib at this one, and faster.
fn zlib_grade(level: u8) -> i32 {
    i32::from(level).max(2) - 1
}

/// The levels of C-Blosc: every second of Zstandard's, and its strongest for 9.
fn zstd_level(level: u8) -> i32 {
    if level >= 9 { 22 } else { 2 * i32::from(level) - 1 }
}

/// A dictionary makes up for most of the gain of higher levels; C-Blosc2 uses level 1 for all.
fn primed_zstd_level(level: u8) -> i32 {
    if level <= 5 { 1 } else { zstd_level(level) }
}

fn decode_snappy(stream: &[u8], out: &mut [u8]) -> Option<usize> {
    let claimed = snap::raw::decompress_len(stream).ok()?;
    if claimed != out.len() {
        return Some(claimed);
    }
    snap::raw::Decoder::new().decompress(stream, out).ok()
}

fn encode_snappy(source: &[u8], out: &mut [u8]) -> Option<usize> {
    // The crate requires room for the worst case, which no stream that is kept needs.
    let packed = snap::raw::Encoder::new().compress_vec(source).ok()?;
    out.get_mut(..packed.len())?.copy_from_slice(&packed);
    Some(packed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_at_the_end_of_a_stream_is_compared_before_its_beginning_is_used() {
        let source = vec![7; 300_000];
        let mut codecs = Codecs::default();
        let mut zlib = vec![0; 10_000];
        let used = codecs.encode(Codec::Zlib, 5, &source, &mut zlib).unwrap();
        zlib.truncate(used);
        let mut zstd = vec![0; Codecs::most_encoded(source.len())];
        let used = codecs.encode_whole(Whole::Zstd { level: 1, checksum: true }, &source, &mut zstd).unwrap();
        zstd.truncate(used);
        for (format, mut stream) in [(StreamFormat::Zlib, zlib), (StreamFormat::Zstd, zstd)] {
            let mut back = vec![0; source.len()];
            codecs.decode_prefix(format, &stream, &mut back, 100, false).unwrap();
            *stream.last_mut().unwrap() ^= 1;
            let error = codecs.decode_prefix(format, &stream, &mut back, 100, false).unwrap_err();
            assert_eq!(error.kind, Kind::Corruption);
            codecs.decode_prefix(format, &stream, &mut back, 100, true).unwrap();
            assert_eq!(back[..100], source[..100]);
        }
    }

    #[test]
    fn a_stream_without_a_checksum_is_decoded_no_further_than_wanted() {
        let source: Vec<u8> = (0..300_000u32).map(|i| ((i >> 7).wrapping_mul(i >> 12)) as u8).collect();
        let mut codecs = Codecs::default();
        for codec in [Codec::BloscLz, Codec::Lz4, Codec::Zstd] {
            let mut packed = vec![0; source.len()];
            let used = codecs.encode(codec, 5, &source, &mut packed).unwrap();
            let mut back = vec![0xee; source.len()];
            codecs.decode_prefix(codec.format(), &packed[..used], &mut back, 1000, false).unwrap();
            assert_eq!(back[..1000], source[..1000], "{codec:?}");
            assert!(back[200_000..].iter().all(|byte| *byte == 0xee), "{codec:?}");
        }
    }

    #[test]
    fn room_for_any_stream_is_little_more_than_the_source() {
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(100_000)
        .collect();
        let mut codecs = Codecs::default();
        for size in [0, 1, 15, 1000, noise.len()] {
            let room = Codecs::most_encoded(size);
            assert!((size..=size + size / 8 + 512).contains(&room));
            for whole in
                [Whole::Lz4 { acceleration: 1 }, Whole::Zlib { level: 9 }, Whole::Zstd { level: 1, checksum: true }]
            {
                assert!(codecs.encode_whole(whole, &noise[..size], &mut vec![0; room]).is_ok(), "{whole:?} {size}");
            }
        }
    }

    #[test]
    fn every_codec_round_trips_whole_and_by_prefix() {
        let source: Vec<u8> = (0..300_000u32).map(|i| ((i >> 7).wrapping_mul(i >> 12)) as u8).collect();
        let mut codecs = Codecs::default();
        for (name, codec) in Codec::NAMES {
            for level in [1, 5, 9] {
                let mut packed = vec![0; source.len()];
                let used = codecs.encode(codec, level, &source, &mut packed).unwrap();
                let mut back = vec![0; source.len()];
                codecs.decode(codec.format(), &packed[..used], &mut back).unwrap();
                assert_eq!(back, source, "{name}");
                for wanted in [1, 1000, 150_000, 299_000] {
                    for trusted in [false, true] {
                        back.fill(0);
                        let stream = &packed[..used];
                        codecs.decode_prefix(codec.format(), stream, &mut back, wanted, trusted).unwrap();
                        assert_eq!(back[..wanted], source[..wanted], "{name}");
                    }
                }
                let longer = [&packed[..used], &[0, 0, 0]].concat();
                assert!(codecs.decode(codec.format(), &longer, &mut back).is_err(), "{name}: bytes behind");
                assert!(codecs.decode(codec.format(), &packed[..used - 5], &mut back).is_err(), "{name}: cut");
                assert!(codecs.decode(codec.format(), &packed[..used], &mut back[1..]).is_err(), "{name}: too long");
            }
        }
    }

    /// The number of blocks of a frame without a checksum, by RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    fn count_blocks(frame: &[u8]) -> usize {
        let (descriptor, mut at, mut count) = (frame[4], 5, 0);
        let single = descriptor >> 5 & 1;
        at += usize::from(1 - single) + [usize::from(single), 2, 4, 8][usize::from(descriptor >> 6)];
        while at < frame.len() {
            let header = u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], 0]);
            let repeats = header >> 1 & 3 == 1;
            at += 3 + if repeats { 1 } else { (header >> 3) as usize };
            count += 1;
        }
        count
    }

    #[test]
    fn blocks_of_fast_levels_end_where_they_are_full() {
        // Every 50 000 bytes another kind of data starts, which a search for better places finds.
        let source: Vec<u8> = (0..1_000_000u32)
            .map(
                |i| if i / 50_000 % 2 == 0 { (i.wrapping_mul(2_654_435_761) >> 24) as u8 & 15 } else { (i >> 3) as u8 },
            )
            .collect();
        let mut codecs = Codecs::default();
        for level in [-1, 0, 3, 4, 5] {
            let whole = Whole::Zstd { level, checksum: false };
            let mut packed = vec![0; Codecs::most_encoded(source.len())];
            let used = codecs.encode_whole(whole, &source, &mut packed).unwrap();
            let full = source.len().div_ceil(127 << 10);
            assert_eq!(count_blocks(&packed[..used]) == full, level < 5, "level {level}");
            let mut back = vec![0; source.len()];
            codecs.decode_whole(whole, &packed[..used], &mut back).unwrap();
            assert_eq!(back, source, "level {level}");
        }
    }
}

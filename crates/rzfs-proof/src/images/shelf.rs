//! Images with their caches, their faults, and the history of all operations.

use super::medium::Medium;
use parking_lot::Mutex;
use rustix::io::Errno;
use rzfs_hostile::Random;
use std::sync::Arc;
use std::time::Duration;

/// The unit a disk writes atomically.
const SECTOR: usize = 512;

/// The number of writes, flushes and losses since the last power cut.
pub(super) type Moment = usize;

/// Whether images keep flushed data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Honesty {
    /// A successful flush makes everything written before durable on its medium.
    #[default]
    KeepsItsWord,
    /// A flush does nothing, and succeeds. Rounds must detect that.
    ForgetsFlushes,
}

/// The effect of a fault on requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    ReadFails,
    WriteFails,
    /// Only some of its sectors are written, and it fails.
    WriteTears,
    /// Nothing is lost yet: another flush may succeed.
    FlushFails,
    /// Writes since the previous flush are lost, and reported once, as in Linux.
    FlushLoses(LostPages),
}

impl Fault {
    const fn strikes(self, request: Request) -> bool {
        match self {
            Self::ReadFails => matches!(request, Request::Read),
            Self::WriteFails | Self::WriteTears => matches!(request, Request::Write),
            Self::FlushFails | Self::FlushLoses(_) => matches!(request, Request::Flush),
        }
    }
}

/// What reads of pages lost at a flush return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LostPages {
    /// The written data: the pages are clean, but still in memory.
    StayInMemory,
    /// The data on the medium.
    AreReadAgain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Read,
    Write,
    Flush,
}

/// A fault that affects a number of requests, after skipping some of their kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injected {
    pub(super) fault: Fault,
    pub(super) spared: u64,
    pub(super) times: u64,
}

/// Whether an image is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    Present,
    /// Its name is gone as well; open handles get ENXIO permanently: when it comes back it must be
    /// reopened.
    Unplugged,
    /// Every request fails with EIO.
    Dead,
}

#[derive(Debug)]
struct Image {
    /// The contents seen by reads.
    current: Medium,
    /// The flushed contents.
    durable: Medium,
    /// Writes since then, in order.
    cached: Vec<(u64, Arc<[u8]>)>,
    presence: Presence,
    /// How often it was unplugged.
    unplugged: u64,
    /// Cached data was lost and no flush has reported that yet.
    owes_an_error: bool,
    injected: Vec<Injected>,
    /// The number of slow requests, and their delay.
    slow: (u64, Duration),
}

impl Image {
    fn of(durable: Medium) -> Self {
        Self {
            current: durable.clone(),
            durable,
            cached: Vec::new(),
            presence: Presence::Present,
            unplugged: 0,
            owes_an_error: false,
            injected: Vec::new(),
            slow: (0, Duration::ZERO),
        }
    }

    /// The fault that affects a request.
    fn struck(&mut self, request: Request) -> Option<Fault> {
        let index = self.injected.iter().position(|one| one.fault.strikes(request))?;
        let one = self.injected.get_mut(index)?;
        if one.spared > 0 {
            one.spared -= 1;
            return None;
        }
        one.times = one.times.saturating_sub(1);
        let fault = one.fault;
        if one.times == 0 {
            self.injected.remove(index);
        }
        Some(fault)
    }

    const fn check_presence(&self) -> Result<(), Errno> {
        match self.presence {
            Presence::Present => Ok(()),
            Presence::Unplugged => Err(Errno::NXIO),
            Presence::Dead => Err(Errno::IO),
        }
    }

    fn lose_cache(&mut self, pages: LostPages) {
        self.cached.clear();
        if pages == LostPages::AreReadAgain {
            self.current = self.durable.clone();
        }
    }
}

#[derive(Debug)]
enum Event {
    Written { image: usize, offset: u64, bytes: Arc<[u8]> },
    Flushed { image: usize },
    Lost { image: usize },
}

/// Which unflushed writes survive a power cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survivors {
    All,
    None,
    /// Each is kept, lost, or torn sector by sector.
    Some(u64),
}

/// A moment at which the power is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct PowerCut {
    pub(super) moment: Moment,
    pub(super) survivors: Survivors,
}

#[derive(Debug)]
struct State {
    images: Vec<Image>,
    /// The durable contents at the last power cut.
    before: Vec<Medium>,
    history: Vec<Event>,
    /// The number of power cuts: handles opened before the last one are invalid.
    life: u64,
}

/// Images with their caches, their faults, and the history of all operations since the last power
/// cut.
#[derive(Debug)]
pub(super) struct Shelf {
    size: u64,
    honesty: Honesty,
    state: Mutex<State>,
}

impl Shelf {
    /// Empty images of this size.
    pub(super) fn new(count: usize, size: u64, honesty: Honesty) -> Self {
        let before = vec![Medium::default(); count];
        let images = before.iter().cloned().map(Image::of).collect();
        let state = State { images, before, history: Vec::new(), life: 0 };
        Self { size, honesty, state: Mutex::new(state) }
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().images.len()
    }

    /// Bytes of each image.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn moment(&self) -> Moment {
        self.state.lock().history.len()
    }

    pub(super) fn presence(&self, image: usize) -> Option<Presence> {
        self.state.lock().images.get(image).map(|image| image.presence)
    }

    /// Opens an image.
    pub(super) fn open(&self, index: usize) -> Answer<Opening> {
        let state = self.state.lock();
        let image = state.images.get(index).ok_or(Errno::NOENT)?;
        match image.presence {
            Presence::Present => Ok(Opening { life: state.life, unplugged: image.unplugged }),
            Presence::Unplugged | Presence::Dead => Err(Errno::NXIO),
        }
    }

    pub(super) fn inject(&self, image: usize, injected: Injected) {
        self.change(image, |image| image.injected.push(injected));
    }

    /// Delays a number of requests.
    pub(super) fn slow_down(&self, image: usize, requests: u64, delay: Duration) {
        self.change(image, |image| image.slow = (requests, delay));
    }

    fn change(&self, image: usize, change: impl FnOnce(&mut Image)) {
        if let Some(image) = self.state.lock().images.get_mut(image) {
            change(image);
        }
    }

    /// Removes an image, with the contents of its cache.
    pub(super) fn detach(&self, index: usize, presence: Presence) {
        let mut state = self.state.lock();
        let Some(image) = state.images.get_mut(index) else { return };
        image.presence = presence;
        image.unplugged += u64::from(presence == Presence::Unplugged);
        image.owes_an_error |= !image.cached.is_empty();
        image.lose_cache(LostPages::AreReadAgain);
        state.history.push(Event::Lost { image: index });
    }

    /// Brings an image back and removes its faults, except for a flush that has to report a loss.
    pub(super) fn mend(&self, image: usize) {
        self.change(image, |image| {
            image.presence = Presence::Present;
            image.injected.clear();
            image.slow.0 = 0;
        });
    }

    pub(super) fn mend_all(&self) {
        (0..self.count()).for_each(|image| self.mend(image));
    }

    pub(super) fn read(
        &self,
        opening: Opening,
        image: usize,
        offset: u64,
        len: usize,
    ) -> Answer<Vec<u8>> {
        self.wait(image);
        let mut state = self.state.lock();
        let image = state.image(opening, image)?;
        image.check_presence()?;
        if image.struck(Request::Read).is_some() {
            return Err(Errno::IO);
        }
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min(left)];
        image.current.read(offset, &mut bytes);
        Ok(bytes)
    }

    pub(super) fn write(
        &self,
        opening: Opening,
        index: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Answer<()> {
        self.wait(index);
        let mut state = self.state.lock();
        let image = state.image(opening, index)?;
        image.check_presence()?;
        if offset.saturating_add(bytes.len() as u64) > self.size {
            return Err(Errno::NOSPC);
        }
        let (written, result) = match image.struck(Request::Write) {
            None => (bytes, Ok(())),
            Some(Fault::WriteTears) => {
                let torn = bytes.len() / SECTOR / 2 * SECTOR;
                (bytes.get(..torn).unwrap_or_default(), Err(Errno::IO))
            }
            Some(_) => (&[][..], Err(Errno::IO)),
        };
        if !written.is_empty() {
            let bytes: Arc<[u8]> = written.into();
            image.current.write(offset, &bytes);
            image.cached.push((offset, Arc::clone(&bytes)));
            state.history.push(Event::Written { image: index, offset, bytes });
        }
        result
    }

    pub(super) fn flush(&self, opening: Opening, index: usize) -> Answer<()> {
        self.wait(index);
        let mut state = self.state.lock();
        let image = state.image(opening, index)?;
        if let Err(gone) = image.check_presence() {
            image.owes_an_error = false;
            return Err(gone);
        }
        if std::mem::take(&mut image.owes_an_error) {
            return Err(Errno::IO);
        }
        match image.struck(Request::Flush) {
            Some(Fault::FlushLoses(pages)) => {
                image.lose_cache(pages);
                state.history.push(Event::Lost { image: index });
                Err(Errno::IO)
            }
            Some(_) => Err(Errno::IO),
            None if self.honesty == Honesty::ForgetsFlushes => Ok(()),
            None => {
                for (offset, bytes) in std::mem::take(&mut image.cached) {
                    image.durable.write(offset, &bytes);
                }
                state.history.push(Event::Flushed { image: index });
                Ok(())
            }
        }
    }

    /// Delays a request as required.
    fn wait(&self, image: usize) {
        let mut delay = Duration::ZERO;
        self.change(image, |image| {
            if let Some(left) = image.slow.0.checked_sub(1) {
                image.slow.0 = left;
                delay = image.slow.1;
            }
        });
        std::thread::sleep(delay);
    }

    /// The contents of the media when the power is cut.
    pub(super) fn remains(&self, cut: PowerCut) -> Vec<Medium> {
        let state = self.state.lock();
        let mut media = state.before.clone();
        let mut cached: Vec<Vec<(u64, &[u8])>> = vec![Vec::new(); media.len()];
        for event in state.history.iter().take(cut.moment) {
            match event {
                Event::Written { image, offset, bytes } => cached[*image].push((*offset, bytes)),
                Event::Lost { image } => cached[*image].clear(),
                Event::Flushed { image } => {
                    for (offset, bytes) in std::mem::take(&mut cached[*image]) {
                        media[*image].write(offset, bytes);
                    }
                }
            }
        }
        for (index, (medium, cached)) in media.iter_mut().zip(cached).enumerate() {
            for (number, (offset, bytes)) in cached.into_iter().enumerate() {
                let random = match cut.survivors {
                    Survivors::All => {
                        medium.write(offset, bytes);
                        continue;
                    }
                    Survivors::None => continue,
                    Survivors::Some(seed) => Random::of_place(seed, &[index as u64, number as u64]),
                };
                outlive(medium, offset, bytes, random);
            }
        }
        media
    }

    /// Cuts the power and restores it: with these media, without faults, and with no image open.
    pub(super) fn restart(&self, media: Vec<Medium>) {
        let mut state = self.state.lock();
        state.images = media.iter().cloned().map(Image::of).collect();
        state.before = media;
        state.history.clear();
        state.life += 1;
    }

    /// Invalidates all open handles of images.
    pub(super) fn hang_up(&self) {
        self.state.lock().life += 1;
    }
}

/// What survives of an unflushed write.
fn outlive(medium: &mut Medium, offset: u64, bytes: &[u8], mut random: Random) {
    match random.below(3) {
        0 => medium.write(offset, bytes),
        1 => {}
        _ => {
            for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                if random.once_in(2) {
                    medium.write(offset + (number * SECTOR) as u64, sector);
                }
            }
        }
    }
}

/// When an image was opened: the number of power cuts, and of times it was unplugged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Opening {
    life: u64,
    unplugged: u64,
}

impl Opening {
    /// Packs both counters into a number; each fits in half of one.
    pub(super) const fn number(self) -> u64 {
        self.life << 32 | self.unplugged
    }

    pub(super) const fn of_number(number: u64) -> Self {
        Self { life: number >> 32, unplugged: number & 0xffff_ffff }
    }
}

/// The result of a request.
pub(super) type Answer<T> = Result<T, Errno>;

impl State {
    /// An image, for a handle opened in this life, and since it was last unplugged.
    fn image(&mut self, opening: Opening, image: usize) -> Answer<&mut Image> {
        if opening.life != self.life {
            return Err(Errno::IO);
        }
        let image = self.images.get_mut(image).ok_or(Errno::NOENT)?;
        match opening.unplugged == image.unplugged {
            true => Ok(image),
            false => Err(Errno::NXIO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Opening = Opening { life: 0, unplugged: 0 };
    const KEPT: [u8; SECTOR] = [1; SECTOR];
    const LOST: [u8; SECTOR] = [2; SECTOR];

    fn first_sector(shelf: &Shelf, survivors: Survivors) -> u8 {
        let cut = PowerCut { moment: shelf.moment(), survivors };
        let mut seen = [0];
        shelf.remains(cut)[0].read(0, &mut seen);
        seen[0]
    }

    fn with_one_flushed_and_one_cached(honesty: Honesty) -> Shelf {
        let shelf = Shelf::new(1, 1 << 20, honesty);
        shelf.write(FIRST, 0, 0, &KEPT).unwrap();
        shelf.flush(FIRST, 0).unwrap();
        shelf.write(FIRST, 0, 0, &LOST).unwrap();
        shelf
    }

    #[test]
    fn a_power_cut_takes_what_was_not_flushed() {
        let shelf = with_one_flushed_and_one_cached(Honesty::KeepsItsWord);
        assert_eq!(first_sector(&shelf, Survivors::None), 1);
        assert_eq!(first_sector(&shelf, Survivors::All), 2);
        let shelf = with_one_flushed_and_one_cached(Honesty::ForgetsFlushes);
        assert_eq!(first_sector(&shelf, Survivors::None), 0);
    }

    #[test]
    fn a_flush_that_loses_pages_tells_it_once_and_they_never_reach_the_medium() {
        for (pages, seen) in [(LostPages::StayInMemory, 2), (LostPages::AreReadAgain, 1)] {
            let shelf = with_one_flushed_and_one_cached(Honesty::KeepsItsWord);
            shelf.inject(0, Injected { fault: Fault::FlushLoses(pages), spared: 0, times: 1 });
            assert_eq!(shelf.flush(FIRST, 0), Err(Errno::IO));
            assert_eq!(shelf.flush(FIRST, 0), Ok(()));
            assert_eq!(shelf.read(FIRST, 0, 0, 1), Ok(vec![seen]));
            assert_eq!(first_sector(&shelf, Survivors::All), 1);
        }
    }

    #[test]
    fn an_image_that_was_away_tells_of_what_its_cache_had() {
        let shelf = with_one_flushed_and_one_cached(Honesty::KeepsItsWord);
        shelf.detach(0, Presence::Unplugged);
        assert_eq!(shelf.write(FIRST, 0, 0, &LOST), Err(Errno::NXIO));
        assert_eq!(shelf.open(0), Err(Errno::NXIO));
        shelf.mend(0);
        assert_eq!(shelf.flush(FIRST, 0), Err(Errno::NXIO));
        let again = Opening::of_number(shelf.open(0).unwrap().number());
        assert_eq!(shelf.read(again, 0, 0, 1), Ok(vec![1]));
        assert_eq!(shelf.flush(again, 0), Err(Errno::IO));
        assert_eq!(shelf.flush(again, 0), Ok(()));
    }
}

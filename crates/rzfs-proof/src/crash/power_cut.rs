//! The moments of power cuts, and their losses.

use rzfs_blockdev::simulated::{History, Loss, Moment};
use rzfs_hostile::Random;

/// The moment of a power cut in a run, and the losses of each device.
#[derive(Clone, Debug)]
pub(super) struct PowerCut {
    pub(super) moment: Moment,
    losses: Vec<Loss>,
}

impl PowerCut {
    /// Chooses one for a run: of eight one loses nothing, and one loses all that was not flushed.
    pub(super) fn choose(
        mut random: Random,
        moments: &[Moment],
        histories: &[(String, History)],
    ) -> Self {
        let chosen = random.below(moments.len() as u64) as usize;
        let moment = moments.get(chosen).copied().unwrap_or(Moment(0));
        let fate = random.below(8);
        let loss = |_: &_| match fate {
            0 => Loss::Nothing,
            1 => Loss::Everything,
            _ => Loss::Random { seed: random.draw() },
        };
        Self { moment, losses: histories.iter().map(loss).collect() }
    }

    /// The devices of the run, with their losses.
    pub(super) fn of<'a>(
        &'a self,
        histories: &'a [(String, History)],
    ) -> impl Iterator<Item = (&'a str, &'a History, &'a Loss)> {
        let lost = histories.iter().zip(&self.losses);
        lost.map(|((name, history), loss)| (&**name, history, loss))
    }
}

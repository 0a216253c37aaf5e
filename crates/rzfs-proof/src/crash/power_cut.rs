//! When the power fails, and what that takes.

use rzfs_blockdev::simulated::{History, Loss, Moment};
use rzfs_hostile::Random;

/// A moment of a run at which the power fails, and what each device loses then.
#[derive(Clone, Debug)]
pub(super) struct PowerCut {
    pub(super) moment: Moment,
    losses: Vec<Loss>,
}

impl PowerCut {
    /// Chooses one for a run: of eight one takes nothing, and one takes all that was not flushed.
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

    /// The devices of the run, and what each of them loses.
    pub(super) fn of<'a>(
        &'a self,
        histories: &'a [(String, History)],
    ) -> impl Iterator<Item = (&'a str, &'a History, &'a Loss)> {
        let lost = histories.iter().zip(&self.losses);
        lost.map(|((name, history), loss)| (&**name, history, loss))
    }
}

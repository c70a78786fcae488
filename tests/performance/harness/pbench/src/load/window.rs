//! What the watched processes and the whole machine took while something was measured.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Figures;
use super::watched::WatchedProcesses;
use crate::processes::{MachineSeconds, cpu_seconds, machine_seconds};

/// A measurement that goes on.
pub(super) struct Window<'w> {
    watched: &'w WatchedProcesses,
    begun: Instant,
    cpu: Vec<f64>,
    machine: MachineSeconds,
}

/// One that is over.
pub(super) struct ClosedWindow<'w> {
    watched: &'w WatchedProcesses,
    took: Duration,
    /// Seconds of CPU, by process.
    cpu: Vec<f64>,
    busy: f64,
    stolen: f64,
}

impl<'w> Window<'w> {
    pub(super) fn open(watched: &'w WatchedProcesses) -> Self {
        let (cpu, machine) = (watched.each(cpu_seconds), machine_seconds());
        Self { watched, begun: Instant::now(), cpu, machine }
    }

    /// How long it has been open.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn close(self) -> ClosedWindow<'w> {
        let took = self.begun.elapsed();
        let cpu = self.watched.each(cpu_seconds);
        let machine = machine_seconds();
        ClosedWindow {
            watched: self.watched,
            took,
            cpu: cpu.iter().zip(&self.cpu).map(|(after, before)| after - before).collect(),
            busy: machine.busy - self.machine.busy,
            stolen: machine.stolen - self.machine.stolen,
        }
    }
}

impl ClosedWindow<'_> {
    pub(super) fn figures(&self, operations: u64) -> Figures {
        let seconds = self.took.as_secs_f64();
        let per_operation = |cpu: f64| match operations {
            0 => 0.0,
            operations => cpu * 1e6 / operations as f64,
        };
        let cpu =
            self.cpu.iter().map(|&cpu| json!({"seconds": cpu, "us_per_op": per_operation(cpu)}));
        let own: f64 = self.cpu.iter().sum();
        let mut figures = Figures::new();
        figures.insert("seconds".into(), json!(seconds));
        figures.insert("ops".into(), json!(operations));
        figures.insert("ops_per_s".into(), json!(operations as f64 / seconds));
        figures.insert("cpu".into(), self.watched.named(cpu));
        // Of `busy`, what has nothing to do with the measurement: how noisy it was.
        let foreign = self.busy - own;
        let machine = json!({"busy": self.busy, "foreign": foreign, "steal": self.stolen});
        figures.insert("machine".into(), machine);
        figures
    }

    /// For transfers: how fast, and the CPU of a gibibyte.
    pub(super) fn transfer_figures(&self, bytes: u64) -> Figures {
        let gibibytes = bytes as f64 / (1_u64 << 30) as f64;
        let rate = gibibytes * 1024.0 / self.took.as_secs_f64();
        let cpu = self.cpu.iter().map(|cpu| json!(cpu / gibibytes));
        let mut figures = Figures::new();
        figures.insert("mib_per_s".into(), json!(rate));
        figures.insert("cpu_s_per_gib".into(), self.watched.named(cpu));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(watched: &WatchedProcesses) -> ClosedWindow<'_> {
        let took = Duration::from_secs(2);
        ClosedWindow { watched, took, cpu: vec![0.5, 1.0], busy: 2.0, stolen: 0.25 }
    }

    fn watched() -> WatchedProcesses {
        WatchedProcesses::parse(&["proxy=1".to_owned()]).unwrap()
    }

    #[test]
    fn rates_are_per_second_and_cpu_is_per_operation() {
        let watched = watched();
        let figures = closed(&watched).figures(1000);
        assert_eq!(figures["ops_per_s"], 500.0);
        assert_eq!(figures["cpu"]["client"]["us_per_op"], 500.0);
        assert_eq!(figures["cpu"]["proxy"], json!({"seconds": 1.0, "us_per_op": 1000.0}));
        assert_eq!(figures["machine"], json!({"busy": 2.0, "foreign": 0.5, "steal": 0.25}));
    }

    #[test]
    fn without_operations_there_is_no_cpu_of_one() {
        let watched = watched();
        assert_eq!(closed(&watched).figures(0)["cpu"]["proxy"]["us_per_op"], 0.0);
    }

    #[test]
    fn a_transfer_is_counted_in_gibibytes() {
        let watched = watched();
        let figures = closed(&watched).transfer_figures(512 << 20);
        assert_eq!(figures["mib_per_s"], 256.0);
        assert_eq!(figures["cpu_s_per_gib"], json!({"client": 1.0, "proxy": 2.0}));
    }

    #[test]
    fn a_watched_process_is_a_name_and_a_number() {
        for wrong in ["proxy", "proxy=", "proxy=x"] {
            let why = WatchedProcesses::parse(&[wrong.to_owned()]).err().unwrap().to_string();
            assert_eq!(why, format!("`{wrong}` is no NAME=PID, such as proxy=1234"));
        }
    }
}

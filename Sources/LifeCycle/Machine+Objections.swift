import AppStateContract

/// Applications that policy must not suspend, according to reporters (§ 2): the owner of the clipboard, an application
/// that plays sound. An objection ends with the process, or with the reporter's connection, because nobody
/// could withdraw it afterwards.
extension Machine {
    /// Accepts a reporter's whole set.
    mutating func replaceObjections(_ reports: [ObjectionReport], _ reporter: ReporterIdentity) {
        var reported: [ProcessID: ReportedObjection] = [:]
        // Nothing is remembered about another user's process.
        for report in reports where reporter.isRoot || report.process.user == reporter.user {
            let new = ReportedObjection(
                lineage: report.process.lineage, reporterUser: reporter.user, reasons: [])
            reported[report.process.process, default: new].reasons.insert(report.reason)
        }
        let before = reportedObjections[reporter.connection] ?? [:]
        guard reported != before else { return }
        reportedObjections[reporter.connection] = reported.isEmpty ? nil : reported
        refreshObjections()
        // The record also contains the reporter.
        let changed = Set(reported.keys).union(before.keys).filter { reported[$0] != before[$0] }
        touched.formUnion(owners(of: changed.compactMap { reported[$0] ?? before[$0] }))
        forget(before.keys)
    }

    /// A reporter's connection has ended.
    mutating func dropObjections(by connection: ConnectionName) {
        guard let before = reportedObjections.removeValue(forKey: connection) else { return }
        refreshObjections()
        forget(before.keys)
    }

    /// The process has ended. `refreshObjections` applies this to the applications.
    mutating func dropObjections(of process: ProcessID) {
        for connection in Array(reportedObjections.keys) {
            reportedObjections[connection]?[process] = nil
            if reportedObjections[connection]?.isEmpty == true { reportedObjections[connection] = nil }
        }
    }

    /// The reasons that reporters gave for each application's processes.
    func reportedReasons() -> [ApplicationNumber: Set<String>] {
        var reasons: [ApplicationNumber: Set<String>] = [:]
        for reported in reportedObjections.values.joined().map(\.value) {
            guard let owner = owner(of: reported.lineage, reportedBy: reported.reporterUser) else { continue }
            reasons[owner, default: []].formUnion(reported.reasons)
        }
        return reasons
    }

    private func owners(of reported: [ReportedObjection]) -> Set<ApplicationNumber> {
        Set(reported.compactMap { owner(of: $0.lineage, reportedBy: $0.reporterUser) })
    }

    /// Applies the reports about processes to their applications.
    mutating func refreshObjections() {
        let reasons = reportedReasons()
        for number in objected.union(reasons.keys).sorted() {
            let reported = (reasons[number] ?? []).sorted()
            guard let application = applications[number], application.reportedReasons != reported else {
                continue
            }
            updateAnnouncing(number, .policy) {
                let wasObjected = !$0.countedReasons.isEmpty
                $0.reportedReasons = reported
                // A fresh grace period, because there are gaps between two pieces of music.
                if wasObjected, $0.countedReasons.isEmpty { $0.grace(.objectionEnded, $1) }
            }
        }
        objected = Set(reasons.keys)
    }

    private mutating func forget(_ processes: some Sequence<ProcessID>) {
        for process in processes.sorted(by: { $0.pid < $1.pid }) where !isRelevant(with: process) {
            step.effects.append(.forget(process))
        }
    }

    // MARK: Written down

    /// The reports about an application's processes, for its record.
    func recordedObjections(of number: ApplicationNumber) -> [[String]] {
        guard objected.contains(number) else { return [] }
        var lines: [[String]] = []
        for (connection, processes) in reportedObjections {
            for reported in processes.values
            where owner(of: reported.lineage, reportedBy: reported.reporterUser) == number {
                let lineage = reported.lineage.flatMap(\.fields)
                lines += reported.reasons.map { [connection, String(reported.reporterUser), $0] + lineage }
            }
        }
        return lines.sorted { $0.lexicographicallyPrecedes($1) }
    }
}

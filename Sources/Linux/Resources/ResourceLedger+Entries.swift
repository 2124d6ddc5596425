extension ResourceLedger {
    /// The data that must outlive us, one line for each changed value: the setting, its target, the target's
    /// original value, and the value that we wrote last (`-`: another process has changed it since, and it is
    /// left alone).
    ///
    ///     nice 1234:567890 0 7
    ///     nice 1234:567890/1240:567999 0 7     a thread of that process
    ///     cpu-weight 100 20 4711 /sys/fs/cgroup/…   inode and directory
    public var entries: [String] {
        var lines: [String] = []
        for (key, record) in records where record.isLeft || record.written != record.original {
            var whose = Self.word(record.process)
            if key.target != record.process { whose += "/" + Self.word(key.target) }
            let written = record.isLeft ? "-" : String(record.written)
            lines.append("\(key.knob.rawValue) \(whose) \(record.original) \(written)")
        }
        for (knob, record) in weights where record.isLeft || record.written != record.original {
            let written = record.isLeft ? "-" : String(record.written)
            lines.append(
                "\(knob.rawValue) \(record.original) \(written) \(record.inode) \(record.directory)")
        }
        return lines.sorted()
    }

    /// One changed value, whatever its target.
    public struct Figure: Hashable, Sendable {
        public let knob: ResourceKnob
        /// The original value; 0 if another process has changed it.
        public let original: Int32
        /// nil: another process has changed it.
        public let written: Int32?

        init(_ knob: ResourceKnob, original: Int32, written: Int32, isLeft: Bool) {
            self.knob = knob
            self.original = isLeft ? 0 : original
            self.written = isLeft ? nil : written
        }
    }

    /// The contents of `entries`, counted.
    public var figures: [Figure: Int] {
        var counts: [Figure: Int] = [:]
        for (key, record) in records where record.isLeft || record.written != record.original {
            let figure = Figure(
                key.knob, original: record.original, written: record.written, isLeft: record.isLeft)
            counts[figure, default: 0] += 1
        }
        for (knob, record) in weights where record.isLeft || record.written != record.original {
            let figure = Figure(
                knob, original: record.original, written: record.written, isLeft: record.isLeft)
            counts[figure, default: 0] += 1
        }
        return counts
    }

    /// Takes over the entries of earlier ledgers of this application. An entry whose target is gone, or that is
    /// invalid, is skipped. Several entries for one value name what it may be: before a change, and after it. A value
    /// that is neither one that was written nor the original is left alone.
    public mutating func adopt(_ entries: [String]) {
        for entry in entries.prefix(2 * Self.limit * ResourceKnob.allCases.count) {
            guard let space = entry.firstIndex(of: " "),
                let knob = ResourceKnob(rawValue: String(entry[..<space]))
            else { continue }
            let rest = entry[entry.index(after: space)...]
            if ResourceKnob.ofCgroups.contains(knob) {
                adoptWeight(knob, rest)
            } else {
                adoptValue(knob, rest)
            }
        }
    }

    private mutating func adoptValue(_ knob: ResourceKnob, _ rest: Substring) {
        let words = rest.split(separator: " ")
        guard words.count == 3, var original = Int32(words[1]) else { return }
        if knob == .io { original = IOPriority(rawValue: original).rawValue }
        let whose = words[0].split(separator: "/")
        guard let process = whose.first.flatMap(Self.identity), whose.count <= 2,
            let target = whose.last.flatMap(Self.identity),
            (try? proc.identity(of: process.pid)) == process,
            target == process || (try? proc.identity(ofThread: target.pid, in: process.pid)) == target,
            let present = try? read(knob, target)
        else { return }
        let written = Int32(words[2])
        let isOurs = present == written || present == original && written != nil
        let key = Key(knob: knob, target: target)
        if !isOurs, records[key] != nil { return }
        records[key] = Record(process: process, original: original, written: present, isLeft: !isOurs)
    }

    private mutating func adoptWeight(_ knob: ResourceKnob, _ rest: Substring) {
        let words = rest.split(separator: " ", maxSplits: 3)
        guard words.count == 4, let original = Int32(words[0]), let inode = UInt64(words[2]),
            words[3].hasPrefix("/"), (try? CgroupShares(directory: String(words[3])).inode()) == inode,
            let present = try? read(knob, CgroupShares(directory: String(words[3])))
        else { return }
        let written = Int32(words[1])
        let isOurs = present == written || present == original && written != nil
        if let known = weights[knob], !isOurs || !known.isLeft && known.written != known.original {
            // One of two cgroups, the former and the next, or one of two values of one cgroup, is still to be undone.
            return
        }
        weights[knob] = CgroupRecord(
            directory: String(words[3]), inode: inode, original: original, written: present, isLeft: !isOurs)
    }

    private static func word(_ identity: ProcessIdentity) -> String {
        "\(identity.pid):\(identity.startTime)"
    }

    private static func identity(_ word: Substring) -> ProcessIdentity? {
        let numbers = word.split(separator: ":")
        guard numbers.count == 2, let pid = Int32(numbers[0]), pid > 0, let start = UInt64(numbers[1])
        else { return nil }
        return ProcessIdentity(pid: pid, startTime: start)
    }
}

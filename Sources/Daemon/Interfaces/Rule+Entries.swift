import AppStateBus
import AppStateContract
import LifeCycle
import Linux

extension Rule {
    /// A rule of `Configure`, each key checked: the error names an unknown key or a wrong type. nil: there are no keys,
    /// so there is no rule.
    init?(_ entries: [(key: String, value: Variant)], limit: Int) throws(MethodError) {
        if entries.isEmpty { return nil }
        self.init()
        var seen: Set<RuleKey> = []
        for (key, value) in entries {
            guard let known = RuleKey(rawValue: key) else {
                throw MethodError(.invalidArgs, "Configure has no key \"\(key.shortened)\"")
            }
            guard seen.insert(known).inserted else {
                throw MethodError(.invalidArgs, "The key \"\(key)\" is given twice")
            }
            switch known {
            case .rule: name = try value.string(key, limit: min(limit, 255))
            case .suspension: suspension = try value.choice(key)
            case .reclaimable: reclaimable = try value.bool(key)
            case .unsavedMark: unsavedMark = try value.bool(key)
            case .relaunchReclaimed: relaunchReclaimed = try value.bool(key)
            case .backgroundGrace: backgroundGrace = try value.uint64(key)
            case .drainEvery:
                let every = try value.uint64(key)
                guard every > 0 else {
                    throw MethodError(.invalidArgs, "\(key) is 0; \(UInt64.never) means not at all")
                }
                drainEvery = every
            case .drainFor:
                let span = try value.uint64(key)
                guard span < .never else { throw MethodError(.invalidArgs, "\(key) cannot be unlimited") }
                drainFor = span
            case .suspendWhen: suspendWhen = try value.choice(key)
            case .backgroundCPUQuota:
                let quota = try value.uint32(key)
                let range = CgroupKnob.percentages
                guard range.contains(quota) else {
                    throw MethodError(
                        .invalidArgs, "\(key): \(quota) is not \(range.lowerBound) to \(range.upperBound)")
                }
                backgroundCPUQuota = quota
            case .keepWhile:
                let words = try value.strings(key, limit: limit)
                for word in words where !ObjectionReason.isValid(word) {
                    throw MethodError(
                        .invalidArgs,
                        "\(key): \"\(word.shortened)\" is not 1 to 64 characters of a-z, 0-9 and -")
                }
                keepWhile = words
            }
        }
    }
}

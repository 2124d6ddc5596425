import AppStateContract

@testable import LifeCycle

/// A desk whose memory runs short. It reads memory when the machine wants that, and kills nothing.
struct PressureDesk {
    var desk: Desk
    private var watched: [PressureSource] = []
    /// The memory of each source.
    var memory: [PressureSource: MemorySample] = [:]
    var sizes: [ApplicationNumber: UInt64] = [:]
    /// The applications in the cgroups of sources that are parts of the machine.
    var members: [PressureSource: Set<ApplicationNumber>] = [:]
    /// The traffic of file pages, the same for all sources; nil: unknown.
    var churn: Churn?
    /// How many bytes each page-out frees.
    var pageOutBytes: UInt64 = 0
    /// Page-outs do not finish by themselves.
    var isSlow = false
    /// Nothing is read by itself.
    var isDeaf = false
    /// The memory of what is ended is not released by itself.
    var isReleasing = false
    /// When sizes were measured, since `forget`.
    private(set) var measuredAt: [Microseconds] = []
    /// Everything since `forget`, with its time.
    private(set) var log: [(time: Microseconds, effect: Effect)] = []
    private var settings: Settings
    private var processes: [ApplicationNumber: ReportedProcess] = [:]

    /// Bytes per second, and the share of the time in which a process waits for memory.
    struct Churn {
        var cached: UInt64 = 100 << 20
        var evicting: UInt64 = 0
        var refaulting: UInt64 = 0
        var waiting = 0.0
        /// The kernel evicts for a cgroup's own limit, not for lack of the machine's memory.
        var isForLimit = false
        /// How often a second a process frees memory itself; nil: not known.
        var searching: UInt64?
        fileprivate var evicted: UInt64 = 0
        fileprivate var reclaimed: UInt64 = 0
        fileprivate var searches: UInt64 = 0
        fileprivate var refaulted: UInt64 = 0
        fileprivate var waited: UInt64 = 0
        fileprivate var time: Microseconds?

        init(evicting: UInt64, refaulting: UInt64) {
            self.evicting = evicting
            self.refaulting = refaulting
        }

        fileprivate mutating func advance(to now: Microseconds) {
            let span = now - (time ?? now)
            time = now
            evicted += evicting * UInt64(span) / 1_000_000
            if !isForLimit { reclaimed += evicting * UInt64(span) / 1_000_000 }
            searches += (searching ?? 0) * UInt64(span) / 1_000_000
            refaulted += refaulting * UInt64(span) / 1_000_000
            waited += UInt64(waiting * Double(span))
        }
    }

    static let everybody = PressureSource(path: "/proc/pressure/memory")
    static let total: UInt64 = 1 << 30
    /// 5 % of the total.
    static let line: UInt64 = 53_687_091
    static let ample: UInt64 = 600 << 20
    static let short: UInt64 = 20 << 20

    /// Policy suspends no application by itself: `held` makes it do so.
    init(
        sources: [PressureSource] = [PressureDesk.everybody],
        _ change: (inout Settings) -> Void = { _ in }
    ) {
        var settings = Settings()
        settings.backgroundGrace = nil
        settings.drainEvery = nil
        change(&settings)
        self.settings = settings
        desk = Desk(settings)
        for source in sources { set(Self.ample, of: source) }
        watch(sources)
    }

    mutating func watch(_ sources: [PressureSource]) {
        watched = sources
        read()
    }

    var machine: Machine { desk.machine }
    var now: Microseconds { desk.now }

    mutating func set(_ available: UInt64, of source: PressureSource = PressureDesk.everybody) {
        var sample = memory[source] ?? MemorySample(available: 0, total: Self.total, swapTotal: 0)
        sample.available = available
        memory[source] = sample
    }

    mutating func setAll(_ available: UInt64) {
        for source in Array(memory.keys) { set(available, of: source) }
    }

    // MARK: Applications

    mutating func background(
        _ bytes: UInt64 = 50 << 20, user: UInt32 = Desk.user,
        _ change: (inout Registration) -> Void = { _ in }
    ) throws -> ApplicationNumber {
        let process = desk.process(user: user)
        let number = try desk.register(process) {
            $0.suspension = .automatic
            change(&$0)
        }
        processes[number] = process
        sizes[number] = bytes
        absorb()
        return number
    }

    /// Suspended by policy.
    mutating func held(
        _ bytes: UInt64 = 50 << 20, user: UInt32 = Desk.user,
        _ change: (inout Registration) -> Void = { _ in }
    ) throws -> ApplicationNumber {
        var hasty = settings
        hasty.backgroundGrace = 0
        desk.handle(.configured(hasty))
        let number = try background(bytes, user: user, change)
        desk.handle(.timePassed)
        desk.handle(.configured(settings))
        desk.settle()
        absorb()
        return number
    }

    /// Suspended on request.
    mutating func stopped(
        _ bytes: UInt64 = 50 << 20, user: UInt32 = Desk.user,
        _ change: (inout Registration) -> Void = { _ in }
    ) throws -> ApplicationNumber {
        let number = try background(bytes, user: user, change)
        try desk.perform(.suspend(number, holder: "uid:0"))
        desk.settle()
        absorb()
        return number
    }

    func process(_ number: ApplicationNumber) throws -> ReportedProcess {
        guard let process = processes[number] else { throw Refusal.noSuchApplication("\(number)") }
        return process
    }

    mutating func focus(_ number: ApplicationNumber) throws {
        let process = try process(number)
        try desk.focus(process, by: Desk.reporter(user: process.user))
        absorb()
    }

    mutating func exit(_ number: ApplicationNumber, _ reason: ExitReason = .killed) throws {
        handle(.exited(try process(number).lineage[0], reason))
    }

    // MARK: What happens

    mutating func handle(_ fact: Fact) {
        desk.handle(fact)
        absorb()
    }

    mutating func perform(_ request: Request) throws {
        try desk.perform(request)
        absorb()
    }

    mutating func configure(_ change: (inout Settings) -> Void) {
        change(&settings)
        handle(.configured(settings))
    }

    mutating func trigger(
        _ level: MemoryPressure = .warning, of source: PressureSource = PressureDesk.everybody
    ) {
        if watched.contains(source) { read(triggers: [source: level]) }
    }

    /// Reads everything, and reports it.
    mutating func read(triggers: [PressureSource: MemoryPressure] = [:]) {
        let now = now
        churn?.advance(to: now)
        var readings = MemoryReadings([:])
        for source in watched {
            guard var sample = memory[source] else { continue }
            if let churn {
                sample.files = FileCache(
                    cached: churn.cached, evicted: churn.evicted, reclaimed: churn.reclaimed,
                    refaulted: churn.refaulted)
                sample.waited = churn.waited
                sample.searches = churn.searching.map { _ in churn.searches }
            }
            readings.sources[source] = MemoryReadings.Reading(sample, trigger: triggers[source])
        }
        if machine.needsSizes(at: now, hasTriggered: !triggers.isEmpty) {
            readings.sizes = MemoryReadings.Sizes(
                sizes.filter { machine.applications[$0.key] != nil }, members: members)
            measuredAt.append(now)
        }
        handle(.memory(readings))
    }

    /// Memory becomes short, and the triggers report it.
    mutating func runShort(to available: UInt64 = PressureDesk.short) {
        setAll(available)
        for source in memory.keys.sorted() { trigger(of: source) }
    }

    /// Lets time pass; `change` may change the memory at each step.
    mutating func pass(_ span: Microseconds, _ change: (inout PressureDesk) -> Void = { _ in }) {
        let end = now + span
        while let next = [machine.nextDeadline, nextReading].compactMap(\.self).min(), next <= end {
            desk.now = max(now, next)
            change(&self)
            if let reading = nextReading, reading <= now { read() } else { handle(.timePassed) }
        }
        desk.now = end
    }

    private var nextReading: Microseconds? { isDeaf ? nil : machine.nextReading }

    /// Nothing is to be done before something happens.
    var isIdle: Bool { machine.nextDeadline == nil && machine.nextReading == nil }

    /// The level returns to normal.
    mutating func calmDown() {
        setAll(Self.ample)
        pass(20 * Desk.second)
    }

    /// Logs the effects, carries them out as far as they concern memory, and reads what is due at once.
    private mutating func absorb() {
        while !desk.effects.isEmpty {
            let effects = desk.effects
            desk.forget()
            for effect in effects {
                log.append((now, effect))
                switch effect {
                case .pageOut(let number, _):
                    if !isSlow { desk.handle(.pagedOut(number, bytes: pageOutBytes)) }
                case .reclaim(let number):
                    if !isReleasing { desk.handle(.released(number)) }
                default: continue
                }
            }
        }
        if let reading = nextReading, reading <= now { read() }
    }

    // MARK: What came of it

    mutating func forget() { (log, measuredAt) = ([], []) }

    var effects: [Effect] { log.map(\.effect) }

    /// The applications that were killed while suspended, in order.
    var reclaimed: [ApplicationNumber] {
        effects.compactMap { if case .reclaim(let number) = $0 { number } else { nil } }
    }

    /// The applications that were asked to end, in order.
    var willReclaim: [ApplicationNumber] {
        effects.compactMap { if case .willReclaim(let number) = $0 { number } else { nil } }
    }

    var killed: [ApplicationNumber] {
        effects.compactMap { if case .kill(let number) = $0 { number } else { nil } }
    }

    var warned: [ApplicationNumber] {
        effects.compactMap { effect in
            guard case .announce(let number, let announcement, _) = effect,
                announcement.signal == .didReceiveMemoryWarning
            else { return nil }
            return number
        }
    }

    var lowMemoryWarnings: [LowMemoryWarning] {
        effects.compactMap { if case .lowMemoryWarning(let level) = $0 { level } else { nil } }
    }

    var levels: [(time: Microseconds, level: MemoryPressure)] {
        log.compactMap { entry in
            guard case .memoryPressureChanged(let level) = entry.effect else { return nil }
            return (entry.time, level)
        }
    }

    var notices: [Notice] {
        effects.compactMap { if case .notice(_, let notice) = $0 { notice } else { nil } }
    }

    func exitReason(_ number: ApplicationNumber) -> ExitReason? {
        for case .removed(number, let reason) in effects { return reason }
        return nil
    }
}

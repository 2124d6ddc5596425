import AppStateBus
import Linux
import Systemd
import Windows

/// Announces starts to the desktop, and asks it for the token that the started program gets: by X11's startup
/// notification, or by xdg_activation_v1 on Wayland.
final class StartupNotices {
    private let loop: EventLoop
    private let journal: Journal
    private var notifier: StartupNotifier?
    private var tokens: (tokens: ActivationTokens, source: Source)?
    /// The starts that the desktop shows, by id, each with its time limit.
    private var shown: [String: Timer] = [:]
    /// The requests that wait for a token, each with its time limit.
    private var waiting: [Int: (limit: Timer?, answered: (String?) -> Void)] = [:]
    private var lastNumber = 0
    /// The compositor gives no tokens.
    private var isWithoutTokens = false

    /// How long a start is shown at most, in microseconds. The desktop has a limit of its own, too.
    private static let longestStart: UInt64 = 20_000_000
    /// How long the compositor may take to answer, in microseconds.
    private static let patience: UInt64 = 1_000_000

    init(loop: EventLoop, journal: Journal) { (self.loop, self.journal) = (loop, journal) }

    /// Announces a start.
    ///
    /// - Parameters:
    ///   - isShown: the entry supports startup notification, which announces when the window is there.
    ///   - answered: called once, perhaps at once, with the token; nil: there is none.
    func begin(
        _ start: StartupNotifier.Start, isShown: Bool, _ answered: @escaping (_ token: String?) -> Void
    ) {
        if Environment["WAYLAND_DISPLAY"] != nil {
            ask(start.applicationID, answered)
        } else if isShown, Environment["DISPLAY"] != nil {
            answered(show(start))
        } else {
            answered(nil)
        }
    }

    /// Whether the desktop shows a start of ours.
    func isShown(_ token: String) -> Bool { shown[token] != nil }

    /// Ends a start that has a window or will have none. Tokens of other programs are ignored.
    func end(_ token: String) {
        guard shown.removeValue(forKey: token) != nil else { return }
        notifier?.end(token)
        // Without a start to announce no connection is needed.
        if shown.isEmpty { notifier = nil }
    }

    private func timer(after pause: UInt64, _ body: @escaping () -> Void) -> Timer? {
        let timer = try? loop.timer(body)
        timer?.arm(at: loop.now + pause)
        return timer
    }

    // MARK: X11

    private func show(_ start: StartupNotifier.Start) -> String? {
        do throws(ObserverFailure) {
            if notifier?.isAlive != true { notifier = try StartupNotifier() }
            guard let token = notifier?.begin(start) else { return nil }
            shown[token] = timer(after: Self.longestStart) { [unowned self] in end(token) }
            return token
        } catch {
            journal.log(.notice, "starts are not announced: \(error)")
            return nil
        }
    }

    // MARK: Wayland

    private func ask(_ appID: String, _ answered: @escaping (String?) -> Void) {
        guard let tokens = connect() else { return answered(nil) }
        lastNumber += 1
        let number = lastNumber
        waiting[number] = (timer(after: Self.patience) { [unowned self] in settle(number, nil) }, answered)
        tokens.ask(for: appID) { [unowned self] token in settle(number, token) }
    }

    private func settle(_ number: Int, _ token: String?) {
        waiting.removeValue(forKey: number)?.answered(token)
    }

    private func connect() -> ActivationTokens? {
        if let tokens { return tokens.tokens }
        guard !isWithoutTokens else { return nil }
        do {
            let tokens = try ActivationTokens()
            let source = try loop.watch(tokens.descriptor) { [unowned self] _ in dispatch() }
            self.tokens = (tokens, source)
            return tokens
        } catch ObserverFailure.unsupported(let why) {
            isWithoutTokens = true
            journal.log(.info, "started applications get no activation token: \(why)")
        } catch {
            journal.log(.notice, "started applications get no activation token: \(error)")
        }
        return nil
    }

    private func dispatch() {
        do throws(ObserverFailure) {
            try tokens?.tokens.dispatch()
        } catch {
            journal.log(.info, "\(error)")
            tokens?.source.cancel()
            tokens = nil
            for number in Array(waiting.keys) { settle(number, nil) }
        }
    }
}

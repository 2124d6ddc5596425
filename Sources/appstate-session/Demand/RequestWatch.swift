import AppStateBus
import AppStateContract
import Windows

/// Reports requests to the window manager of an X11 session to close or raise a suspended application's window, and new
/// trays for icons.
final class RequestWatch: Watcher {
    private let observer: RequestObserver
    private let needed: (_ pid: Int32, _ reason: DemandReason) -> Void
    private var source: Source?
    private var resting: Set<Int32> = []
    private var suspended: Set<Int32> = []

    /// - Parameter needed: gets the process of the window, which may or may not be suspended.
    init(
        loop: EventLoop, needed: @escaping (_ pid: Int32, _ reason: DemandReason) -> Void
    ) throws {
        self.needed = needed
        observer = try RequestObserver()
        source = try loop.watch(observer.descriptor) { [unowned self] _ in dispatch() }
    }

    func onStall(_ handler: @escaping (_ times: Int) -> Void) { observer.onStall(handler) }

    /// Listens while an application is suspended, or about to be.
    func follow(_ situation: Situation) {
        let suspended = Set(situation.applications.suspended)
        // One that was suspended may have grabbed the X server at that moment.
        if !suspended.isSubset(of: self.suspended) { observer.ping() }
        self.suspended = suspended
        let resting = situation.applications.resting
        if self.resting.isEmpty != resting.isEmpty { observer.listen(!resting.isEmpty) }
        self.resting = resting
    }

    private func dispatch() {
        do throws(ObserverFailure) {
            for (request, processes) in try observer.dispatch() {
                switch request {
                case .close: for pid in processes { needed(pid, .close) }
                case .activate: for pid in processes { needed(pid, .activate) }
                case .manager: for pid in resting { needed(pid, .announcement) }
                }
            }
        } catch {
            // The X server has ended, which the observer of windows notices, too.
            source?.cancel()
        }
    }
}
